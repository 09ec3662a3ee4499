"""`llmc policy`: the rules about calls, and which of them decides about one."""

import os
import shlex
from typing import Any

import msgspec

from ..app import App
from ..command_line import Arguments, Command, Flag, Positional
from ..config.load import load
from ..config.schema import WorkspaceRule
from ..errors import InvalidArgument
from ..gate.catalog import Catalog
from ..gate.dispatch import Gate
from ..gate.log import Log, correlation_id
from ..permissions.rules import BY_SUBJECT, describe
from ..printing import print_line
from ..session import Session

command = Command(
    "policy",
    "Shows the rules about calls ([[mcp.policy]]: tool, token, subject, path, program, host, when, risk → allow, ask"
    " or deny) and what they say about a call. The first rule that matches decides; a workspace's own file can only"
    " add rules that ask or deny. Roots, secret and protected names and the sandbox hold whatever they say.",
    default="show",
)


@command.verb("show", "the rules in force, in the order in which they are asked")
def _show(given: Arguments) -> int:
    del given
    policy = load().config.policy
    for place, rule in enumerate(policy.rules, 1):
        origin = "  (workspace: besides the others)" if isinstance(rule, WorkspaceRule) else ""
        print_line(f"{place:3}  {describe(rule)}{origin}")
    print_line(f"else risky calls ask: {', '.join(policy.ask) or 'none'}; all others are allowed")
    return 0


@command.verb(
    "test",
    "which rule decides about a call, and why: NAME {JSON}, or NAME key=value …",
    positionals=(Positional("CALL", "as linux_fs_read path=a.txt"),),
    flags=(
        Flag("--token", "as the client of this token (default: as on stdio)", "NAME"),
        Flag("--subject", "as a client whose token an issuer signed", "SUBJECT"),
    ),
)
def _test(given: Arguments) -> int:
    name, arguments = read_call(given.positionals[0])
    loaded = load()
    log = Log(enabled=False, level="error", log_format="text", with_ids=False)
    gate = Gate(App(loaded.config, loaded.roots, loaded.data_dir, loaded.files), Catalog(loaded.config), log)
    try:
        subject, token = given.value("--subject"), given.value("--token")
        principal = f"{BY_SUBJECT}{subject}" if subject else token or f"uid:{os.getuid()}"
        ctx = gate.context(Session(principal, "llmc-policy-test"), correlation_id())
        tool = gate.catalog.find(name)
        decision, risk = gate.permits.decide(ctx, tool, tool.parse(arguments))
        print_line(f"{decision.action}: {decision.reason}")
        if risk is not None:
            print_line(f"risk: {risk.kind}: {risk.deed}")
        about = [word for word in (decision.subject.path, decision.subject.program, decision.subject.host) if word]
        if about:
            print_line(f"about: {', '.join(about)}")
    finally:
        gate.close()
    return 0


def read_call(text: str) -> tuple[str, dict[str, Any]]:
    """A call as a person types it."""
    name, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if not rest:
        return name, {}
    try:
        if rest.startswith("{"):
            return name, msgspec.json.decode(rest, type=dict[str, Any])
        pairs = [word.partition("=") for word in shlex.split(rest)]
    except (msgspec.DecodeError, ValueError) as exc:
        raise InvalidArgument(f"the arguments can't be read: {exc}", hint='NAME {"key": "value"}') from None
    if any(not equals for _, equals, _ in pairs):
        raise InvalidArgument(f"{rest!r}: expected key=value", hint="As linux_fs_read path=a.txt.")
    return name, {key: _value(value) for key, _, value in pairs}


def _value(text: str) -> Any:
    """A value: true, numbers, lists and objects as JSON, anything else as text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
