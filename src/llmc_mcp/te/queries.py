"""te's own commands, which tell about earlier ones: handles, statistics, help."""

import json
import os
import sys
from collections.abc import Callable

from .. import __version__
from ..command_line import JSON, Arguments, Flag, Positional, UsageError, unknown_argument
from ..command_line import Command as CommandLine
from ..config.load import load
from ..envelope import kept
from ..envelope.families import budget_of
from ..envelope.family import Budget
from ..envelope.records import CommandRecord, identity, tokens_used
from ..errors import LlmcError
from ..files.handles import Handle, Handles, policy_from
from ..printing import print_line, print_lines
from ..store.sqlite import SqliteStore
from ..tokens import estimate
from ..visible import visible
from . import child as wrapped
from .folder import reader, root_set
from .init import SHELLS, script

_LISTED = 50
_HOOK_BYTES = 4 << 20  # a longer command is left alone


te = CommandLine(
    "",
    "Runs a command; for an agent, with its output condensed. `te -c LINE` runs a shell line by bash. `te -- COMMAND`"
    " runs a command that is called like one of te's own words.",
    program="te",
    positionals=(Positional("COMMAND", ""), Positional("ARGS", "", required=False, repeated=True)),
    flags=(
        JSON._replace(help="wrap what the command prints, or te's own reply, in JSON"),
        Flag("--raw", "print what the command prints, unchanged"),
    ),
)


def answer(words: list[str]) -> int:
    """Run one of te's own commands; returns the exit code."""
    as_json = [JSON.name] if JSON.name in words else []
    verb, *rest = [word for word in words if word != JSON.name] or [""]
    try:
        if verb in ("-h", "--help") and not rest:
            print(te.help(), end="")
            return 0
        if verb in ("", "--") and not rest:
            print(te.help(), end="", file=sys.stderr)
            return 2
        if verb not in te.verbs:
            raise unknown_argument(verb, te.first_words())
        return te.dispatch([verb, *(as_json if JSON in te.verbs[verb].flags else ()), *rest])
    except UsageError as exc:
        hint = f"hint: {visible(exc.hint)}\n" if exc.hint else ""
        usage = te.verbs[verb].synopsis() if verb in te.verbs else "te --help lists what it knows.\n"
        print(f"te: {visible(exc.message)}\n{hint}{usage}", end="", file=sys.stderr)
        return 2


@te.verb("--version", "print the version")
def _print_version(given: Arguments) -> int:
    del given
    print(f"te {__version__}")
    return 0


@te.verb("--list-handles", "list the output that earlier replies left out", flags=(JSON,))
def _handles(given: Arguments) -> int:
    return _guarded(lambda: _list_handles(JSON.name in given))


@te.verb("--stats", "commands, agents, what was slow, what was saved", flags=(JSON,))
def _stats(given: Arguments) -> int:
    from .stats import show

    return _guarded(lambda: show(JSON.name in given))


@te.verb(
    "--handle",
    "print output that an earlier reply left out, as far as the budget goes",
    positionals=(kept.HANDLE,),
    flags=(kept.CHUNK, kept.GREP),
)
def _handle(given: Arguments) -> int:
    handle = given.positionals[0]
    kept.refuse_both(given)
    if "--grep" in given:
        return _guarded(lambda: _print_matches(handle, given.value("--grep")))
    if "--chunk" in given:
        number = given.number("--chunk", least=0)
        return _guarded(lambda: _print_page(kept.chunk(*_find(handle), number, _budget())))
    return _guarded(lambda: _print_page(kept.whole(*_find(handle), _budget())))


@te.verb(
    "init",
    'print wrappers for an agent\'s shell: eval "$(te init bash)"',
    positionals=(Positional("|".join(SHELLS), ""),),
    flags=(Flag("--agents", "wrappers that act only where TE_AGENT_ID is set"),),
)
def _init(given: Arguments) -> int:
    shell = given.positionals[0]
    if shell not in SHELLS:
        print_line(f"te: init knows bash, zsh and fish, not {shell}", sys.stderr)
        return 2
    print(script(shell, te.first_words(), agents="--agents" in given), end="")
    return 0


@te.verb(
    "discover",
    "read the transcripts of Claude Code and Codex on this machine: what te would have saved and lost",
    flags=(JSON, Flag("--lost", "print the names that would have been lost")),
)
def _discover(given: Arguments) -> int:
    from .discover import show as show_discovered

    return _guarded(lambda: show_discovered(as_json=JSON.name in given, lost="--lost" in given))


@te.verb("--hook", "answer a PreToolUse hook of Claude Code: put te in front of its Bash command")
def _answer_hook(given: Arguments) -> int:
    del given
    from .hook import answer_hook

    print(answer_hook(sys.stdin.buffer.read(_HOOK_BYTES + 1)), end="")
    return 0


def _guarded(action: Callable[[], int]) -> int:
    try:
        code = action()
        sys.stdout.flush()
    except LlmcError as exc:
        print_lines(f"te: {exc.message}", sys.stderr)
        if exc.hint:
            print(f"hint: {exc.hint}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    return code


def open_handles() -> tuple[Handles, str]:
    """The user's handles as far as they may be seen from this folder, and the name that they are kept under."""
    loaded = load()
    return Handles(SqliteStore(loaded.data_dir), policy_from(loaded.config), reader()), f"uid:{os.getuid()}"


def _list_handles(as_json: bool) -> int:
    handles, principal = open_handles()
    found = handles.list(principal)[:_LISTED]
    for handle in found:
        if as_json:
            print(json.dumps(kept.listed(handle)))
        else:
            print_line(kept.line_of(handle))
    if not found:
        print("te: no handles", file=sys.stderr)
    return 0


def _find(handle_id: str) -> tuple[Handles, Handle]:
    handles, principal = open_handles()
    handle = handles.find(principal, handle_id)
    if handle.payload is None:
        print_line(f"te: {handle.id} refers to {handle.meta['path']}: read that", sys.stderr)
        raise SystemExit(1)
    return handles, handle


def _budget() -> Budget:
    who, settings = identity(), load().config.te
    whole = settings.budgets.get(who.agent_id, settings.default_budget)
    return budget_of(settings, whole, tokens_used(who))[0]


def _print_matches(handle_id: str, pattern: str) -> int:
    """The lines that match, with their numbers, as grep finds them."""
    handles, handle = _find(handle_id)
    path = os.path.join(handles.folder, handle.payload or "")
    source, end = wrapped.pipe()
    child = wrapped.WrappedCommand(["grep", "-anh", "-e", pattern, "--", path], stdout=end)
    os.close(end)
    found = kept.Matches(_budget())
    for _, piece in wrapped.pieces({source: "stdout"}, os.pidfd_open(child.pid)):
        found.take(piece)
    _print_page(found.page(handle))
    return child.wait()


def _print_page(page: kept.KeptPage) -> int:
    sys.stdout.flush()
    noted = CommandRecord(["te --handle"], identity(), root_set())
    noted.mode, noted.bytes_out, noted.tokens_out = "enriched", len(page.body()), estimate(page.body())
    noted.record(0)
    wrapped.write(1, page.text(on_terminal=os.isatty(1)))
    return 0
