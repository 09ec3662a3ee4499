"""`te COMMAND ARGS…` and `te -c LINE`: runs a command in an agent's shell and condenses its output for a model.

On a person's terminal `te` execs the command. For an agent it condenses the output of commands that it understands;
all other output passes through unchanged. Exit code and signals are always the command's. Passing through imports
next to nothing.
"""

import os
import sys

from ..envelope.programs import FAMILY_OF, is_script

_OWN_WORDS = ("init", "discover")
_SHELL = "bash"  # that runs a line


def main() -> None:
    """Run the command, or one of te's own."""
    flags, words = set[str](), sys.argv[1:]
    while words and words[0] in ("--json", "--raw", "--shell"):
        if words[0] == "--shell" and (len(words) < 2 or not _same_stdout(words.pop(1))):
            flags.add("become")  # a wrapper within a pipeline: a program reads the output
        flags.add(words.pop(0))
    if words[:1] == ["-c"] and len(words) > 1:
        _run([_SHELL, *words], flags, line=words[1])
    if words in ([], ["--"]) or (words[0].startswith("-") and words[0] != "--") or words[0] in _OWN_WORDS:
        from .queries import answer

        raise SystemExit(answer([*(flags & {"--json", "--raw"}), *words]))
    _run(words[1:] if words[0] == "--" else words, flags)


def _run(command: list[str], flags: set[str], line: str = "") -> None:
    as_json, raw = "--json" in flags, "--raw" in flags
    if "become" in flags or not _stdout_is_open():
        _become(command)
    asked = as_json or raw or "--shell" in flags or os.environ.get("TE_AGENT_ID")  # a wrapper of `te init` asks, too
    if not asked and os.isatty(1):
        _become(command)
    if as_json or (not raw and (line or os.path.basename(command[0]) in FAMILY_OF or is_script(command[0]))):
        from .run import run

        run(command, as_json=as_json, raw=raw, line=line)
    pass_through(command, "raw" if raw else "passthrough")


def _stdout_is_open() -> bool:
    try:
        os.fstat(1)
    except OSError:
        return False
    return True


def _same_stdout(pid: str) -> bool:
    """Whether our stdout is the shell's."""
    try:
        theirs = os.stat(f"/proc/{int(pid)}/fd/1")
    except (OSError, ValueError):
        return False
    ours = os.fstat(1)
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)


def _become(command: list[str]) -> None:
    """Replace this process by the command."""
    from .child import NotStarted

    try:
        os.execvp(command[0], command)
    except OSError as exc:
        refused = NotStarted(command[0], exc)
    _refuse(str(refused), refused.code)


def _refuse(message: str, code: int) -> None:
    os.write(2, f"{message}\n".encode("utf-8", "surrogateescape"))
    raise SystemExit(code)


def pass_through(command: list[str], mode: str) -> None:
    """Run the command unchanged and record the run."""
    from ..envelope import records
    from . import child, folder

    noted = records.CommandRecord(command, records.identity(), folder.root_set())
    noted.mode = mode
    try:
        code, printed = child.run_through(command, counted=mode != "raw")
    except child.NotStarted as exc:
        noted.record(exc.code)
        _refuse(str(exc), exc.code)
        return
    noted.printed(printed)
    noted.record(code)
    child.end_like(code)
