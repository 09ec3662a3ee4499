"""Findings that are new since a commit or since a session began: syntax errors, and what the project's checkers say.

A finding is new if the former state does not have it too: the same text about a line with the same content, wherever
that line has moved.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..commands.runner import CommandCall, CommandRunner
from ..commands.shell_syntax import CommandLine
from ..errors import Cancelled, LlmcError, Timeout
from ..files.filesystem import Filesystem, Place, Root
from ..rag.build.syntax_client import Checker
from ..rag.parse.detect import language_of
from .baseline import Baseline
from .linters import CodeChecker, CodeFinding, available, findings

_MOST_OUTPUT = 4 << 20
_SYNTAX_S = 5.0  # for one file
_NOT_UNPACKED = 97
_OWN_FOLDERS = "node_modules .venv venv"
_UNPACK = f"""
d=$(mktemp -d) && trap 'rm -rf "$d"' EXIT && git archive --format=tar "$1" | tar -xf - -C "$d" || exit {_NOT_UNPACKED}
shift
for one in {_OWN_FOLDERS}; do [ -e "$one" ] && ln -s "$PWD/$one" "$d/$one"; done
[ -d target ] && export CARGO_TARGET_DIR="$PWD/target"
echo "$d"
cd "$d" && "$@"
"""


class CheckReport(NamedTuple):
    """New findings, which checkers ran, and which could not."""

    found: list[CodeFinding]
    ran: list[str]
    skipped: list[str]
    former: int  # findings that were there before


class ProjectCheck:
    """Checks files of a project."""

    def __init__(self, files: Filesystem, shell: CommandRunner, syntax: Checker, root: Root, seconds: float) -> None:
        self._files, self._shell, self._syntax, self._root, self._seconds = files, shell, syntax, root, seconds
        self._former: dict[tuple[str, str], list[CodeFinding]] = {}  # of a checker, in a commit

    def run(self, baseline: Baseline, texts: dict[str, bytes], call: CommandCall) -> CheckReport:
        """Check files, given with their texts as they are now."""
        found = list(self._syntax_errors(baseline, texts))
        ran, skipped, former = ["syntax"], list[str](), 0
        languages = {language_of(path, text[:4096]) for path, text in texts.items()}
        for checker, program in available(languages, self._exists, self._locate).items():
            own = {path: text for path, text in texts.items() if language_of(path, text[:4096]) in checker.languages}
            try:
                now, then = self._compare(checker, program, own, baseline, call)
            except (Cancelled, Timeout):
                raise
            except LlmcError as exc:
                skipped.append(f"{checker.name}: {exc.message}")
                continue
            ran.append(checker.name)
            fresh = self._new(now, then, texts, baseline)
            former += len(now) - len(fresh)
            found += fresh
        return CheckReport(found, ran, skipped, former)

    # --- syntax --------------------------------------------------------------------------------------

    def _syntax_errors(self, baseline: Baseline, texts: dict[str, bytes]) -> Iterator[CodeFinding]:
        for path, text in texts.items():
            said = self._syntax.check(path, baseline.files.get(path), text, _SYNTAX_S)
            if said is None or said == "ok" or said.endswith("as before this change"):
                continue
            number, _, rest = said.removeprefix("line ").partition(": ")
            yield CodeFinding("syntax", path, int(number), rest)

    # --- checkers ------------------------------------------------------------------------------------

    def _exists(self, name: str) -> bool:
        try:
            self._files.stat(Place(self._root, os.fsencode(name), name))
        except LlmcError:
            return False
        return True

    def _locate(self, name: str) -> str | None:
        try:
            return self._shell.programs.locate(name, self._root.shown)
        except LlmcError:
            return None

    def _compare(
        self, checker: CodeChecker, program: str, texts: dict[str, bytes], baseline: Baseline, call: CommandCall
    ) -> tuple[list[CodeFinding], list[CodeFinding]]:
        """The findings of a checker now, and those in the former state."""
        now = self._printed(checker, checker.command(program, sorted(texts)), None, call)
        if not now:
            return [], []
        if checker.by_text:
            return now, self._of_former_texts(checker, program, {one.path for one in now}, baseline, call)
        if not baseline.commit:
            return now, []
        known = self._former.get((baseline.commit, checker.name))
        if known is None:
            kept = sorted(path for path in texts if baseline.files.get(path) is not None)
            words = checker.command(program, kept)
            script = ["sh", "-c", _UNPACK, "sh", baseline.commit, *words]
            known = self._printed(checker, script, None, call) if kept or not checker.takes_files else []
            if not checker.takes_files:
                self._former[baseline.commit, checker.name] = known
        return now, known

    def _of_former_texts(
        self, checker: CodeChecker, program: str, paths: set[str], baseline: Baseline, call: CommandCall
    ) -> list[CodeFinding]:
        found: list[CodeFinding] = []
        for path in sorted(paths):
            before = baseline.files.get(path)
            if before is not None:
                words = checker.command_for_text(program, path)
                found += self._printed(checker, words, before.decode(errors="replace"), call)
        return [one._replace(path=one.path if one.path in paths else next(iter(paths))) for one in found]

    def _printed(
        self, checker: CodeChecker, words: list[str], stdin: str | None, call: CommandCall
    ) -> list[CodeFinding]:
        """Run a checker in the sandbox, as any command, and read what it prints."""
        pieces: list[bytes] = []

        def tap(_: str, piece: bytes) -> None:
            if sum(map(len, pieces)) < _MOST_OUTPUT:
                pieces.append(piece)

        self._shell.run_command(
            CommandLine(words),
            cwd=self._root.shown,
            timeout_sec=self._seconds,
            stdin=stdin,
            call=call._replace(tap=tap),
            listed=False,
        )
        printed = b"".join(pieces).decode(errors="replace")
        first = printed.partition("\n")[0]
        return findings(checker.name, printed, [self._root.shown, os.fsdecode(self._root.real), first])

    # --- comparing -----------------------------------------------------------------------------------

    def _new(
        self, now: Sequence[CodeFinding], then: Sequence[CodeFinding], texts: dict[str, bytes], baseline: Baseline
    ) -> list[CodeFinding]:
        """The findings that the former state does not have."""
        before = {path: text for path, text in baseline.files.items() if text is not None}
        known = Counter(_key(one, before.get(one.path) or self._read(one.path)) for one in then)
        fresh: list[CodeFinding] = []
        for one in now:
            key = _key(one, texts.get(one.path) or self._read(one.path))
            if known[key]:
                known[key] -= 1
            else:
                fresh.append(one)
        return fresh

    def _read(self, path: str) -> bytes:
        try:
            fd, info = self._files.open_file(Place(self._root, os.fsencode(path), path))
        except LlmcError:
            return b""
        with os.fdopen(fd, "rb", buffering=0) as opened:
            return opened.read(min(info.st_size, _MOST_OUTPUT)) or b""


def _key(one: CodeFinding, text: bytes) -> tuple[str, str, bytes]:
    lines = text.split(b"\n")
    return one.path, one.text, lines[one.line - 1].strip() if 0 < one.line <= len(lines) else b""
