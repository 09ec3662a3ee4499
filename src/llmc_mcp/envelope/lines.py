"""Reading a shell line: which of its commands speaks to the reader, and so which family its output is of.

The line is never rewritten, only run by bash as it stands. What is not certain here (loops, subshells, functions) is
nobody's family, and its output passes through.
"""

import os
from typing import NamedTuple

_SPACE = " \t"
_OPERATORS = ("&&", "||", "|&", ";;", "|", ";", "&", "\n")
_COMPOUND = frozenset(
    ("for", "while", "until", "if", "case", "select", "function", "{", "}", "(", ")", "[[", "do", "then", "time", "!")
)
_ASSIGNED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")
# Programs that print nothing, or a line or two, beside the one that a line is about.
_BRIEF = frozenset(
    (
        *("cd", "export", "set", "unset", "mkdir", "rm", "rmdir", "cp", "mv", "touch", "chmod", "ln", "source", "."),
        *("true", ":", "echo", "printf", "sleep", "pwd", "kill", "wait", "trap", "exit", "test", "[", "pushd", "popd"),
        *("patch", "sync", "false", "ulimit", "umask", "which", "tee", "shopt", "alias"),
    )
)
_BRIEF_GIT = frozenset(("add", "checkout", "switch", "restore", "stash", "reset", "commit", "apply", "rm", "mv", "tag"))
_PREFIXES = frozenset(
    ("env", "nice", "nohup", "time", "stdbuf", "command", "sudo", "timeout", "xvfb-run", "npx", "bunx", "uvx")
)
_RUNNING = frozenset(
    (*(("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("hatch", "run"), ("pipenv", "run")), ("pnpm", "exec"))
)


class SimpleCommand(NamedTuple):
    """The words of one command; `silent` if its output goes to a file."""

    argv: list[str]
    silent: bool = False


Pipeline = list[SimpleCommand]


class NotSimple(Exception):
    """The line has syntax whose output can't be told from its words."""


def pipelines(line: str) -> list[Pipeline]:
    """All pipelines of a line; a command of assignments alone has no words. Raises NotSimple."""
    return _Reader(line).pipelines()


def leading(line: str, programs: frozenset[str]) -> tuple[str, str]:
    """A line in two: the commands of these programs that it begins with, and what follows them.

    Where the second part depends on the first (`&&`), all of it must: `cd a && b; c` runs c in any case, and
    is one part.
    """
    reader = _Reader(line)
    front = reader.front(programs)
    before, after = set(_operators(line[:front])), set(_operators(line[front:]))
    apart = not before & {"||", "&"} and (not before & {"&&"} or after <= {"&&", "|", "|&"})
    return (line[:front], line[front:]) if apart else ("", line)


def _operators(line: str) -> list[str]:
    reader = _Reader(line)
    reader.pipelines()
    return reader.operators


def speaking(line: str) -> list[Pipeline]:
    """The pipelines of a line whose output is worth condensing; raises NotSimple."""
    return [pipeline for pipeline in _Reader(line).pipelines() if not _is_brief(pipeline)]


def _is_brief(pipeline: Pipeline) -> bool:
    last = pipeline[-1]
    if last.silent or not last.argv:
        return True
    program = os.path.basename(last.argv[0])
    if program in ("sed", "perl"):
        return any(word.startswith(("-i", "--in-place", "-pi")) for word in last.argv[1:])
    if program == "git":
        return any(word in _BRIEF_GIT for word in last.argv[1:3])
    return len(pipeline) == 1 and program in _BRIEF


def without_prefixes(words: list[str]) -> list[str]:
    """The command behind assignments and programs that run another one (`env A=1 timeout 5 pytest`)."""
    while words:
        name, equals, _ = words[0].partition("=")
        if equals and name and not name[0].isdigit() and set(name) <= _ASSIGNED:
            words = words[1:]
        elif (program := os.path.basename(words[0])) in _PREFIXES:
            words = _after_flags(words[1:])
            if program == "timeout" and words:
                words = words[1:]
        elif len(words) > 2 and (program, words[1]) in _RUNNING:
            words = _after_flags(words[2:])
        else:
            break
    return words


def _after_flags(words: list[str]) -> list[str]:
    while words and words[0].startswith("-"):
        takes_value = words[0] in ("-n", "-s", "-k", "-u", "-i", "-o", "-e")
        words = words[2 if takes_value else 1 :]
    return words


class _Reader:
    """Splits a line as bash does, as far as simple commands go."""

    def __init__(self, line: str) -> None:
        self._line, self._at = line, 0
        self._heredocs: list[tuple[str, bool]] = []
        self._pipelines: list[Pipeline] = []
        self._pipeline: Pipeline = []
        self._words: list[str] = []
        self._silent = False
        self.operators: list[str] = []

    def pipelines(self) -> list[Pipeline]:
        """All pipelines, in order."""
        while self._at < len(self._line):
            self._step()
        self._end_command()
        self._end_pipeline()
        return self._pipelines

    def front(self, programs: frozenset[str]) -> int:
        """Where the first command of another program begins."""
        begin = 0
        while self._at < len(self._line):
            known = len(self._pipelines)
            self._step()
            if len(self._pipelines) > known:
                done = self._pipelines[-1]
                if len(done) > 1 or not done[0].argv or done[0].argv[0] not in programs:
                    break
                begin = self._at
        return begin

    def _step(self) -> None:
        letter = self._line[self._at]
        operator = next((one for one in _OPERATORS if self._line.startswith(one, self._at)), "")
        if letter in _SPACE:
            self._at += 1
        elif self._line.startswith("\\\n", self._at):
            self._at += 2
        elif letter == "#":
            self._at = self._end_of_line()
        elif letter == "&" and self._line.startswith(("&>", "&>>"), self._at):
            self._redirect()
        elif operator:
            self._operate(operator)
        elif letter in "<>" or self._numbered_redirect():
            self._redirect()
        elif letter in "()":
            raise NotSimple
        else:
            self._words.append(self._word())

    def _operate(self, operator: str) -> None:
        self._at += len(operator)
        self.operators.append(operator)
        self._end_command()
        if operator not in ("|", "|&"):
            self._end_pipeline()
        if operator == "\n":
            self._skip_heredocs()

    def _end_command(self) -> None:
        assigned = bool(self._words)
        words, self._words = without_prefixes(self._words), []
        silent, self._silent = self._silent, False
        if words and words[0] in _COMPOUND:
            raise NotSimple
        if words or assigned:
            self._pipeline.append(SimpleCommand(words, silent))

    def _end_pipeline(self) -> None:
        if self._pipeline:
            self._pipelines.append(self._pipeline)
        self._pipeline = []

    def _end_of_line(self) -> int:
        end = self._line.find("\n", self._at)
        return len(self._line) if end < 0 else end

    def _numbered_redirect(self) -> bool:
        return self._line[self._at].isdigit() and self._line[self._at + 1 : self._at + 2] in ("<", ">")

    def _redirect(self) -> None:
        """A redirection: output to a file makes a command silent; a here-document is skipped later."""
        line = self._line
        stream = line[self._at] if line[self._at] in "0123456789&" else ""
        self._at += len(stream)
        reads = line[self._at] == "<"
        start = self._at
        while self._at < len(line) and line[self._at] in "<>&|-":
            self._at += 1
        operator = line[start : self._at]
        while self._at < len(line) and line[self._at] in _SPACE:
            self._at += 1
        target = self._word() if self._at < len(line) and line[self._at] not in "\n;|&" else ""
        if operator in ("<<", "<<-"):
            self._heredocs.append((target, operator == "<<-"))
        elif not reads and stream in ("", "1", "&") and not (operator == ">&" and target in ("1", "2")):
            self._silent = True

    def _skip_heredocs(self) -> None:
        for end, indented in self._heredocs:
            while self._at < len(self._line):
                stop = self._end_of_line()
                text = self._line[self._at : stop]
                self._at = stop + 1
                if (text.lstrip("\t") if indented else text) == end:
                    break
        self._heredocs = []

    def _word(self) -> str:
        """One word without its quotes; expansions stay as they are written."""
        line, parts = self._line, list[str]()
        while self._at < len(line):
            letter = line[self._at]
            if letter in " \t\n;|&<>()":
                break
            if letter == "\\":
                parts.append(line[self._at + 1 : self._at + 2].strip("\n"))
                self._at += 2
            elif letter in "'\"`":
                parts.append(self._quoted(letter))
            elif line.startswith("$(", self._at):
                parts.append(self._substitution())
            else:
                parts.append(letter)
                self._at += 1
        return "".join(parts)

    def _quoted(self, quote: str) -> str:
        line, start = self._line, self._at + 1
        at, parts = start, list[str]()
        while at < len(line) and line[at] != quote:
            if quote == '"' and line[at] == "\\" and line[at + 1 : at + 2] in ('"', "\\", "$", "`"):
                at += 1
            parts.append(line[at : at + 1])
            at += 1
        if at >= len(line):
            raise NotSimple
        self._at = at + 1
        return "".join(parts)

    def _substitution(self) -> str:
        start, depth = self._at, 0
        while self._at < len(self._line):
            letter = self._line[self._at]
            depth += {"(": 1, ")": -1}.get(letter, 0)
            self._at += 1
            if letter == ")" and not depth:
                return self._line[start : self._at]
        raise NotSimple
