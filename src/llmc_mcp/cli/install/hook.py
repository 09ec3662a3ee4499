"""`llmc install claude-code --hook`: have Claude Code put `te` in front of its Bash commands, or no longer."""

import os
import shlex
import shutil
import sys
from typing import Any, NamedTuple, cast

from ...errors import InvalidArgument
from . import jsonc
from .client_file import ClientFile, backups, change, print_diff, read, remove, replace
from .clients import Client
from .jsonc import Unreadable

_EVENT = ("hooks", "PreToolUse")
_SECONDS = 10
_CODEX = (
    "Codex runs a command that a hook rewrote only if the hook approves it as well, and llmc approves nothing for you"
)


class HookRequest(NamedTuple):
    """The command line."""

    project: bool
    uninstall: bool
    dry_run: bool


def carry_out(client: Client, request: HookRequest) -> None:
    """Write the hook into the client's settings, or remove it."""
    if client.name == "codex":
        raise InvalidArgument(_CODEX, hint='Put `eval "$(te init bash --agents)"` into the shell\'s start-up file.')
    if client.name != "claude-code":
        raise InvalidArgument(f"{client.title} has no hook that te could use", hint="Known is claude-code.")
    change(_settings_file(request.project), lambda file: _change(client, file, request))


def is_there(client: Client, *, project: bool) -> bool:
    """Whether the client's settings have the hook."""
    if client.name != "claude-code":
        return False
    hooks = _hooks_in(read(_settings_file(project)).text or "")
    return any(_without_ours(one) != one for one in hooks)


def _settings_file(project: bool) -> str:
    folder = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")
    return os.path.join(os.path.join(os.getcwd(), ".claude") if project else folder, "settings.json")


def _change(client: Client, file: ClientFile, request: HookRequest) -> None:
    before = file.text or ""
    hooks = _hooks_in(before)
    others = [kept for kept in map(_without_ours, hooks) if kept is not None]
    wanted = others if request.uninstall else [*others, _own_hook()]
    if wanted == hooks:
        print(f"{client.title}: {'no hook there' if request.uninstall else 'the hook is there'} ({file.shown})")
        return
    after = _with_hooks(before, wanted)
    if request.dry_run:
        print_diff(file.shown, before, after)
        return
    if request.uninstall:
        _uninstall(client, file, after)
        return
    backup = replace(file, after)
    print(f"{client.title}: hook installed in {file.shown}")
    print(f"  as it was: {backup}" if backup else "  the file is new", file=sys.stderr)
    print("  it approves nothing; rules such as Bash(pytest:*) see `te -c 'pytest …'`", file=sys.stderr)


def _uninstall(client: Client, file: ClientFile, after: str) -> None:
    """Leave what was there before the hook: the file, its backup where nothing else changed, or no file."""
    kept = backups(file)
    original = next((path for path in kept if _is_only_change(read(path).text or "", file.text or "")), None)
    backup = None
    if original is not None:
        replace(file, read(original).text or "", keep=False)
        os.unlink(original)
    elif not kept and _is_empty(after) and not os.path.islink(file.shown):
        remove(file)
    else:
        backup = replace(file, after)
    print(f"{client.title}: hook removed from {file.shown}")
    gone = "the file held nothing else and is gone"
    print(f"  as it was: {backup}" if backup else f"  {'the file is as before' if original else gone}", file=sys.stderr)


def _is_only_change(before: str, now: str) -> bool:
    """Whether the hook is all that a text has more than its backup."""
    try:
        return _with_hooks(before, [*_hooks_in(before), _own_hook()]) == now
    except Unreadable:
        return False


def _is_empty(text: str) -> bool:
    return jsonc.parse(text, comments=False).value == {}


def _hooks_in(text: str) -> list[Any]:
    found: Any = jsonc.parse(text, comments=False).value if text.strip() else {}
    for name in _EVENT:
        if not isinstance(found, dict):
            raise Unreadable(1, f"{name} is not in an object")
        found = cast("dict[str, Any]", found).get(name, {} if name != _EVENT[-1] else [])
    if not isinstance(found, list):
        raise Unreadable(1, f"{'.'.join(_EVENT)} is not a list")
    return cast("list[Any]", found)


def _own_hook() -> dict[str, Any]:
    program = shutil.which("te", path=os.path.dirname(sys.executable)) or shutil.which("te")
    if program is None:
        raise InvalidArgument("te itself was not found", hint="Install llmc-mcp so that te is beside llmc.")
    command = f"{shlex.quote(os.path.abspath(program))} --hook"
    return {"matcher": "Bash", "hooks": [{"type": "command", "command": command, "timeout": _SECONDS}]}


def _without_ours(group: Any) -> Any:
    """A group of hooks without te's; None if it holds nothing else."""
    if not isinstance(group, dict) or not isinstance(cast("dict[str, Any]", group).get("hooks"), list):
        return cast("object", group)
    entry = cast("dict[str, Any]", group)
    hooks = cast("list[Any]", entry["hooks"])
    kept = [hook for hook in hooks if not _is_ours(hook)]
    if len(kept) == len(hooks):
        return entry
    return {**entry, "hooks": kept} if kept else None


def _is_ours(hook: Any) -> bool:
    command = cast("dict[str, Any]", hook).get("command") if isinstance(hook, dict) else None
    if not isinstance(command, str):
        return False
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    return len(words) == 2 and os.path.basename(words[0]) == "te" and words[1] == "--hook"


def _with_hooks(text: str, hooks: list[Any]) -> str:
    """The text with this list of hooks; without it, and what would be empty then, if there are none."""
    if hooks:
        return jsonc.put(text, _EVENT, hooks, comments=False)
    after = jsonc.cut(text, _EVENT, comments=False)
    left = cast("dict[str, Any]", jsonc.parse(after, comments=False).value).get(_EVENT[0])
    return jsonc.cut(after, _EVENT[:1], comments=False) if left == {} else after
