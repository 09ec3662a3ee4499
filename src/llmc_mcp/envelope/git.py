"""git log, diff, show and status: one line per commit, per file with its hunks, or per folder."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from .family import Budget, Family, FamilyPlan, Room, ShownOutput, clip, fits, hot_zone, lines_of, readable
from .names import names_in
from .text import Ends

_COMMITS = 50_000
_FILES = 20_000
_KEPT_BYTES = 4 << 20
_LINE = 200
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
_GLOBAL_VALUES = ("-C", "-c", "--git-dir", "--work-tree", "--namespace")

# Flags that change the output to something short or machine-readable.
_LOG_OTHER = re.compile(r"-z$|--(?:pretty|format|graph|json|null)|--color(?:=always)?$|-L")
_LOG_MORE = re.compile(r"-(?:p|u|U\d+|c|cc|m)$|--(?:patch|stat|name-|numstat|shortstat|dirstat|raw|summary|compact)")
_DIFF_OTHER = re.compile(
    r"-(?:z|s|q|R0)$|--(?:stat|numstat|shortstat|dirstat|name-|raw|word-diff|color(?!=never)|color-words|check|quiet"
    r"|summary|compact|no-patch|output|format|pretty|null|ext-diff)"
)
_STATUS_OTHER = re.compile(r"-z$|--(?:porcelain|null|column)|-v")

_COMMIT = re.compile(rb"commit ([0-9a-f]{7,64})(.*)$")
_ONE_LINE = re.compile(rb"([0-9a-f]{7,64}) (.*)$")
_TESTS = re.compile(rb"(?:^|/)(?:tests?|__tests__|spec)/|(?:^|/)test_|_test\.|\.(?:test|spec)\.")
_GENERATED = re.compile(
    rb"(?:^|/)(?:package-lock\.json|pnpm-lock\.yaml|go\.sum)$|\.min\.\w+$"
    rb"|\.(?:svg|map|snap|lock|po|pb\.go)$|(?:^|/)(?:dist|vendor|node_modules)/"
)


def plan(argv: list[str]) -> FamilyPlan | None:
    """A plan; None for other subcommands and formats."""
    at = _subcommand(argv)
    if at is None:
        return None
    words = argv[at + 1 :]
    family = _family(argv[at], words[: words.index("--")] if "--" in words else words)
    return FamilyPlan(list(argv), family) if family is not None else None


def _subcommand(argv: list[str]) -> int | None:
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] in ("--help", "--version", "-h", "-v", "-p", "--paginate"):
            return None
        at += 2 if argv[at] in _GLOBAL_VALUES else 1
    return at if at < len(argv) else None


def _family(name: str, words: list[str]) -> Family | None:
    def has(other: re.Pattern[str]) -> bool:
        return any(other.match(word) for word in words if word.startswith("-"))

    if name == "log" and not has(_LOG_OTHER):
        return Ends() if has(_LOG_MORE) else GitLog()
    if name == "diff" and not has(_DIFF_OTHER):
        return Diff()
    if name == "show" and not has(_DIFF_OTHER) and not any(":" in word for word in words):
        return Diff()
    if name == "status" and not has(_STATUS_OTHER):
        return Status()
    return None


def _clean(lines: list[bytes]) -> list[bytes]:
    """Strip colours that the user's configuration may enable."""
    return [_COLOUR.sub(b"", line) if b"\x1b" in line else line for line in lines]


# --- log -----------------------------------------------------------------------------------------


class Commit(NamedTuple):
    """A commit in a line."""

    sha: bytes
    date: bytes
    author: bytes
    subject: bytes

    def line(self) -> bytes:
        parts = (self.sha[:10], self.date, self.author, self.subject)
        return clip(b" ".join(part for part in parts if part), _LINE)


class GitLog:
    """Commits, newest first, one per line."""

    def __init__(self) -> None:
        self._commits: list[Commit] = []
        self._count = 0
        self._fields: dict[bytes, bytes] = {}
        self._authors = Counter[bytes]()
        self._last = b""

    def take(self, lines: list[bytes]) -> None:
        for line in _clean(lines):
            if (found := _COMMIT.match(line)) is not None:
                self._flush()
                self._fields = {b"sha": found[1]}
            elif not self._fields and (found := _ONE_LINE.match(line)) is not None:
                self._fields = {b"sha": found[1], b"subject": found[2]}
                self._flush()
            elif line.startswith(b"    ") and self._fields and b"subject" not in self._fields:
                self._fields[b"subject"] = line.strip()
            elif b":" in line[:12] and b"subject" not in self._fields:
                name, _, value = line.partition(b":")
                self._fields.setdefault(name, value.strip())

    def _flush(self) -> None:
        fields, self._fields = self._fields, {}
        if not fields:
            return
        self._count += 1
        author = fields.get(b"Author", b"").partition(b" <")[0]
        self._authors[author] += 1
        date = _day(fields.get(b"Date") or fields.get(b"AuthorDate", b""))
        commit = Commit(fields[b"sha"], date, author, fields.get(b"subject", b""))
        self._last = date or self._last
        if len(self._commits) < _COMMITS:
            self._commits.append(commit)

    def skip(self, lines: int) -> None:
        del lines  # lines can't be mapped to commits

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        self._flush()
        counts = {"commits": self._count}
        if held is not None and fits(held, budget):
            return ShownOutput(lines_of(held), counts)
        lines = Room(budget, 0.5 if budget.counts_only else 0.85).fill(commit.line() for commit in self._commits)
        left = self._count - len(lines)
        crumbs = [f"{left:,} more commits" + (f" back to {readable(self._last)}" if self._last else "")] if left else []
        best = [f"{readable(name)} ({count:,})" for name, count in self._authors.most_common(4) if name]
        if best and left:
            crumbs.append(f"authors: {', '.join(best)}")
        return ShownOutput(lines, counts, "counts" if budget.counts_only else "grouped", True, "", tuple(crumbs))


_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")


def _day(date: bytes) -> bytes:
    """git's default date in ten characters; other forms as they are."""
    words = date.split()
    if len(words) >= 5 and words[1] in _MONTHS:
        return b"%s-%02d-%02d" % (words[4], _MONTHS.index(words[1]) + 1, int(words[2]))
    return date[:25]


# --- diff ----------------------------------------------------------------------------------------


GENERATED = 2


class FileDiff:
    """One file's part of a diff."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.added = self.removed = 0
        self.note = b""
        self.lines: list[bytes] = []  # hunk headers and changed lines
        self.complete = True

    @property
    def rank(self) -> int:
        """Sort key: sources first, then tests, then generated files."""
        return GENERATED if _GENERATED.search(self.path) else 1 if _TESTS.search(self.path) else 0

    def heading(self, *, short: bool = False) -> bytes:
        """Its line in the list of files; `short`: without its folder."""
        note = b" " + self.note if self.note else b""
        return (
            (self.path.rpartition(b"/")[2] if short else self.path) + f" +{self.added} -{self.removed}".encode() + note
        )


class Diff:
    """A list of the files with their counts, then as many hunks as fit, without context."""

    def __init__(self) -> None:
        self._files: list[FileDiff] = []
        self._intro: list[bytes] = []
        self._kept = 0
        self._in_hunk = False

    def take(self, lines: list[bytes]) -> None:
        for line in _clean(lines):
            if line.startswith((b"diff --git ", b"diff --cc ", b"diff --combined ")):
                self._in_hunk = False
                self._files.append(FileDiff(_path_of(line)))
            elif not self._files:
                if len(self._intro) < 40:
                    self._intro.append(clip(line, _LINE))
            elif line.startswith(b"@@"):
                self._in_hunk = True
                self._keep(line)
            elif self._in_hunk:
                self._changed(line)
            else:
                _note(self._files[-1], line)

    def _changed(self, line: bytes) -> None:
        file = self._files[-1]
        if line.startswith(b"+"):
            file.added += 1
        elif line.startswith(b"-"):
            file.removed += 1
        else:
            return
        self._keep(line)

    def _keep(self, line: bytes) -> None:
        if self._kept < _KEPT_BYTES and len(self._files) < _FILES:
            kept = clip(line, _LINE)
            self._files[-1].lines.append(kept)
            self._kept += len(kept) + 64

    def skip(self, lines: int) -> None:
        del lines

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        changed = {file.path: file.added + file.removed for file in self._files}
        counts = {"files": len(self._files), "added": 0, "removed": 0}
        counts["added"] = sum(file.added for file in self._files)
        counts["removed"] = sum(file.removed for file in self._files)
        if held is not None and fits(held, budget):
            return ShownOutput(lines_of(held), counts)
        near = {file.path for file in self._files if not budget.interest.isdisjoint(names_in(file.path))}
        ranked = sorted(self._files, key=lambda file: (file.rank, file.path not in near, -(file.added + file.removed)))
        listed = Budget(budget.tokens * (7 if budget.counts_only else 5) // 10, budget.bytes // 2)
        lines = [*Room(listed, 0.3).fill(self._intro), *_headings(ranked, listed)]
        if not budget.counts_only:
            lines += _changes(ranked, Room(budget, 0.4))
        level = "counts" if budget.counts_only else "grouped"
        return ShownOutput(lines, counts, level, True, hot_zone(changed))


def _headings(ranked: list[FileDiff], budget: Budget) -> list[bytes]:
    """Every file in a line, or every folder in a line with its files, or with their number."""
    plain = [file.heading() for file in ranked]
    folders: dict[bytes, list[FileDiff]] = {}
    for file in ranked:
        folders.setdefault((file.path.rpartition(b"/")[0] or b".") + b"/", []).append(file)
    folded = [
        folder + b": " + b", ".join(file.heading(short=True) for file in files) for folder, files in folders.items()
    ]
    for lines in (plain, folded):
        if len(Room(budget).fill(lines)) == len(lines):
            return lines
    totals = [_total(folder, files) if len(files) > 1 else files[0].heading() for folder, files in folders.items()]
    shown = Room(budget).fill(totals)
    left = len(totals) - len(shown)
    return [*shown, f"… {left:,} more folders".encode()] if left else shown


def _total(folder: bytes, files: list[FileDiff]) -> bytes:
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    return folder + f" {len(files):,} files +{added} -{removed}".encode()


def _changes(ranked: list[FileDiff], room: Room) -> Iterator[bytes]:
    """Hunks of one file after the other; a change that several files share is shown once."""
    alike: dict[tuple[bytes, ...], list[FileDiff]] = {}
    for file in ranked:
        changed = tuple(line for line in file.lines if not line.startswith(b"@@"))
        if changed and file.rank < GENERATED:
            alike.setdefault(changed, []).append(file)
    for files in alike.values():
        file, others = files[0], len(files) - 1
        title = b"--- " + file.path + (f" (and {others:,} files with the same change)".encode() if others else b"")
        kept = room.fill([title, *file.lines])
        if len(kept) > 1:
            yield from kept
        if len(kept) <= len(file.lines):
            left = len(file.lines) - max(len(kept) - 1, 0)
            yield (
                f"\u2026 {left:,} more lines of ".encode()
                + file.path
                + b" left out, and the files after it in the list"
            )
            return


def _path_of(line: bytes) -> bytes:
    """The file's new name; quoted by git when it is odd, and then given so."""
    names = line.removeprefix(b"diff --git ")
    if names.startswith(b'"a/') and line.endswith(b'"') and (at := names.rfind(b'" "b/')) > 0:
        return b'"' + names[at + len(b'" "b/') :]
    if names.startswith(b"a/") and line.endswith(b'"') and (at := names.find(b' "b/')) > 0:
        return b'"' + names[at + len(b' "b/') :]
    if names.startswith((b"a/", b'"a/')) and (at := names.find(b" b/")) > 0:
        return names[at + len(b" b/") :]
    return line.rpartition(b" ")[2]


def _note(file: FileDiff, line: bytes) -> None:
    """What a diff says of a file before its hunks."""
    for start, note in (
        (b"new file", b"(new)"),
        (b"deleted file", b"(deleted)"),
        (b"rename from ", b"(renamed from " + line[12:] + b")"),
        (b"Binary files", b"(binary)"),
        (b"GIT binary patch", b"(binary)"),
    ):
        if line.startswith(start):
            file.note = note


# --- status --------------------------------------------------------------------------------------


class Status:
    """Branch and sections; when files are too many, folders with counts."""

    def __init__(self) -> None:
        self._top: list[bytes] = []
        self._sections: dict[bytes, list[bytes]] = {}
        self._section = b""
        self._count = 0

    def take(self, lines: list[bytes]) -> None:
        for line in _clean(lines):
            if line.startswith(b"\t"):
                self._add(self._section, line.strip())
            elif re.match(rb"[ MADRCUT?!]{2} \S", line):
                self._add(line[:2].strip() or b"??", line[3:])
            elif line.endswith(b":") and not line.startswith(b" "):
                self._section = line[:-1]
            elif line.strip() and not line.lstrip().startswith(b"(use ") and len(self._top) < 12:
                self._top.append(clip(line, _LINE))

    def _add(self, section: bytes, path: bytes) -> None:
        self._count += 1
        self._sections.setdefault(section, []).append(path)

    def skip(self, lines: int) -> None:
        del lines

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        counts = {"files": self._count}
        if held is not None and fits(held, budget):
            return ShownOutput(lines_of(held), counts)
        lines = list(self._top)
        share = 0.8 / max(len(self._sections), 1)
        for name, paths in self._sections.items():
            lines.append(name + f": {len(paths):,}".encode())
            lines += Room(budget, share).fill(_by_folder(paths, budget, share))
        level = "counts" if budget.counts_only else "grouped"
        zone = hot_zone(dict.fromkeys((path.rpartition(b":")[2].strip() for path in self._all()), 1))
        return ShownOutput(lines, counts, level, True, zone)

    def _all(self) -> Iterator[bytes]:
        return (path for paths in self._sections.values() for path in paths)


def _by_folder(paths: list[bytes], budget: Budget, share: float) -> list[bytes]:
    """The paths as they are, or folders with counts and a first name."""
    if not budget.counts_only and len(Room(budget, share).fill(paths)) == len(paths):
        return paths
    folders: dict[bytes, list[bytes]] = {}
    for path in paths:
        folders.setdefault(path.rpartition(b"/")[0] + b"/", []).append(path.rpartition(b"/")[2])
    return [
        folder + f" {len(names):,}: ".encode() + b" ".join(names[:4]) + (b" \xe2\x80\xa6" if len(names) > 4 else b"")
        for folder, names in sorted(folders.items(), key=lambda item: -len(item[1]))
    ]
