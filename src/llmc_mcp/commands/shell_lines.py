"""Commands as agents write them: a list is a program and its arguments, a string may be a line for a shell.

A line runs in the same sandbox as any command, and the sandbox is what confines it. That the programs which a line
names are looked up in the list of allowed ones keeps an agent to what the operator had in mind; a line can still start
others (`$CMD`, a script, a program that starts programs).
"""

import shlex
import threading
from typing import TYPE_CHECKING

import msgspec

from ..errors import BadArgs, CommandNotAllowed, FeatureUnavailable, NotFound, PermissionDenied
from ..kernel.launcher import Launcher
from .allowlist import Programs
from .shell_syntax import ALSO_BUILTINS, BUILTINS, KEYWORDS, CommandLine, needs_shell, split

if TYPE_CHECKING:
    from ..rag.build.parser_process import ParserProcess
    from .shell_child import LineNames

_SHELLS = ("bash", "sh", "dash", "zsh")
_LONGEST_LINE = 1 << 20  # bytes
_LONGEST_ARGUMENT = 120_000  # bytes; the kernel takes 128 KiB
_PARSE_S = 5.0
_PARSER = "llmc_mcp.commands.shell_child"
_TOLD = 1_000
_FOLDER_LASTS_NOT = "cd lasts as long as its line: the next command starts in its own cwd again."
_BACKGROUND_LASTS_NOT = "What a line leaves in the background ends with the line; without & it would be handed over."
_OF_THE_SHELL = BUILTINS | KEYWORDS | ALSO_BUILTINS


class ShellLines:
    """Tells lines for a shell from plain commands, and what they name; one instance per server, for any thread."""

    def __init__(self, launcher: Launcher, programs: Programs, data_dir: str, setting: str) -> None:
        self._launcher, self._programs, self._data_dir, self._setting = launcher, programs, data_dir, setting
        self._parser: ParserProcess | None = None  # made with the first line
        self._free = threading.Lock()
        self._told: dict[tuple[object, str], None] = {}  # whom what was explained to, the last ones

    def read(self, command: str | list[str]) -> CommandLine:
        """What to start for a command."""
        if not isinstance(command, str) or not command.strip() or not needs_shell(command):
            return CommandLine(split(command))
        if "\0" in command:
            raise BadArgs("the command contains a NUL byte")
        shell = self._shell()
        if self._setting == "never" or not shell:
            return CommandLine(split(command), warnings=_not_interpreted(shell))
        line = command.encode("utf-8", "replace")
        if len(line) > _LONGEST_LINE:
            raise BadArgs(
                f"the line has {len(line):,} bytes, and {_LONGEST_LINE:,} are possible",
                hint="Write it to a file (linux_fs_write), and run that.",
            )
        names = self._parsed(line)
        programs = tuple(dict.fromkeys(name for name in names.programs if name not in _OF_THE_SHELL))
        named = tuple(name for name in programs if name and name not in names.functions)
        if len(line) > _LONGEST_ARGUMENT:
            return CommandLine([shell, "-c"], named, line, names.changes_folder, names.in_background)
        words = [shell, "-c", command, shell]  # the last one is how it calls itself in messages
        return CommandLine(words, named, None, names.changes_folder, names.in_background)

    def names(self, command: str | list[str]) -> "LineNames":
        """What a command names: its programs, and what is risky of what they do. A shell in a list is read as well."""
        line = command if isinstance(command, str) else shlex.join(split(command))
        return self._parsed(line.encode("utf-8", "replace"))

    def explanations(self, owner: object, line: CommandLine) -> list[str]:
        """What the author of a line may not expect of it; each is said once to an owner."""
        surprises = [_FOLDER_LASTS_NOT] * line.changes_folder + [_BACKGROUND_LASTS_NOT] * line.in_background
        new = [text for text in surprises if (owner, text) not in self._told]
        for text in new:
            self._told[owner, text] = None
        while len(self._told) > _TOLD:
            self._told.pop(next(iter(self._told)), None)
        return new

    def release_idle(self, idle_s: float) -> bool:
        """End the parser if it has read no line for so long; whether it was ended."""
        if not self._free.acquire(blocking=False):
            return False
        try:
            return self._parser is not None and self._parser.release_idle(idle_s)
        finally:
            self._free.release()

    def close(self) -> None:
        """End the parser."""
        with self._free:
            if self._parser is not None:
                self._parser.close()

    def _shell(self) -> str:
        """The first shell that is there and on the list."""
        for name in _SHELLS:
            try:
                self._programs.find(name, "/")
            except (NotFound, CommandNotAllowed, PermissionDenied):
                continue
            return name
        return ""

    def _parsed(self, line: bytes) -> "LineNames":
        from ..rag.build.parser_process import ParserProcess
        from .shell_child import LineNames, LineQuestion

        request = msgspec.msgpack.encode(LineQuestion(line))
        try:
            with self._free:
                self._parser = self._parser or ParserProcess(self._launcher, _PARSER, self._data_dir)
                answer = self._parser.ask("bash", request, _PARSE_S)
        except OSError as exc:
            raise FeatureUnavailable(
                f"lines for a shell are not available: their parser does not start ({exc.strerror})",
                hint='A list of words works: ["bash", "-c", "…"].',
            ) from None
        names = msgspec.msgpack.decode(answer, type=LineNames) if answer is not None else LineNames(False)
        if not names.complete:
            raise BadArgs(
                "it takes too long to find out which programs the line names",
                hint='Put it into a script, or pass a list of words: ["bash", "-c", "…"].',
            )
        return names


def _not_interpreted(shell: str) -> tuple[str, ...]:
    way = f'; for a shell\'s meaning of it: ["{shell}", "-c", "…"]' if shell else ""
    return (f"The command was taken as plain words, without a shell{way}.",)
