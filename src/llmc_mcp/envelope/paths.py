"""find, fd and ls: names grouped by folder; when those are too many, folders with counts.

The largest folders are expanded first, until the budget is spent; .git, node_modules and the like stay collapsed. Files
in the top folder, which characterise a project, are always named.
"""

import heapq
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from ..tokens import estimate
from .family import Budget, FamilyPlan, Room, ShownOutput, fits, hot_zone, lines_of, listed_names, readable
from .flags import FlagSyntax, GivenFlag
from .names import names_in

_NAMES = 400_000  # entries kept in memory
_NAMED = 12  # files of a folder that are named before it is summarised
_TOP_NAMED = 40
_OPENED = 2_000
_PER_TOKEN = 8  # names, or more, never fit into a token
_OPENED_SHARE = 0.4  # of the room, at least, is for the tree; the rest lists names that stay closed
_CLOSED_LISTED = 50  # entries of a folder of generated files that are listed
_CLOSED = frozenset(
    name.encode()
    for name in (
        *(".git", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", ".ruff_cache", ".cache"),
        *(".pytest_cache", "target", "dist", "build", ".next", ".idea", "site-packages"),
    )
)
_MADE_BY_TOOLS = _CLOSED - {b"build", b"dist", b"target"}  # which may also be somebody's own folders

# Predicates that make find print something else than one path per line, or act on files.
_FIND_OTHER = re.compile(
    r"-(?:f?printf?|f?print0|f?ls|exec(?:dir)?|ok(?:dir)?|delete|D|O\d?|files0-from|help|version)$"
)
_FD = FlagSyntax(
    "edtEcjSo",
    frozenset(
        f"--{name}"
        for name in (
            *("extension", "max-depth", "min-depth", "exact-depth", "type", "exclude", "color", "threads", "size"),
            *("changed-within", "changed-before", "owner", "glob", "max-results", "base-directory", "search-path"),
        )
    ),
    frozenset(
        f"--{name}"
        for name in (
            *("hidden", "no-ignore", "unrestricted", "case-sensitive", "ignore-case", "glob", "absolute-path"),
            *("follow", "full-path", "fixed-strings", "and", "one-file-system", "regex", "prune"),
        )
    ),
)
_FD_KNOWN = frozenset(f"-{letter}" for letter in "HIusigaLpFedtEjS1") | _FD.long_values | _FD.long_bare
_LS = FlagSyntax("IwT", frozenset({"--ignore", "--hide", "--sort", "--time", "--color", "--time-style"}))
_LS_KNOWN = frozenset(f"-{letter}" for letter in "aAlhRrtSXU1dpFGgonvkLHf") | {
    *("--all", "--almost-all", "--recursive", "--reverse", "--directory", "--human-readable", "--classify"),
    *("--group-directories-first", "--sort", "--time", "--ignore", "--hide", "--si", "--dereference"),
}
# Values of ls --color that mean no colours in a pipe; `alias ls='ls --color=auto'` is in many start-up files.
_NO_COLOUR = frozenset({"never", "no", "none", "auto", "tty", "if-tty"})
_LS_LONG = frozenset({"-l", "-g", "-o", "-n"})


def plan(argv: list[str]) -> FamilyPlan | None:
    """A plan; None if the output would be anything but names."""
    program = os.path.basename(argv[0])
    if program == "find":
        plain = not any(_FIND_OTHER.match(word) and word != "-print" for word in argv[1:])
        return FamilyPlan(list(argv), Paths()) if plain else None
    syntax, known = (_LS, _LS_KNOWN) if program == "ls" else (_FD, _FD_KNOWN)
    flags = list(syntax.parse(argv[1:]))
    names = {flag.name for flag in flags if flag.name and not _colourless(flag)}
    if not names <= known:
        return None
    return FamilyPlan(list(argv), LsListing(long=bool(names & _LS_LONG)) if program == "ls" else Paths())


def _colourless(flag: GivenFlag) -> bool:
    return flag.name == "--color" and flag.value in _NO_COLOUR


class Folder:
    """A folder with counts of everything below it."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.names: list[bytes] = []
        self.folders: dict[bytes, Folder] = {}
        self.total = 0
        self.kinds = Counter[bytes]()

    def kinds_text(self) -> bytes:
        """The commonest kinds of its files: ".py 20, .html 5"."""
        return b", ".join(kind + b" " + f"{count:,}".encode() for kind, count in self.kinds.most_common(4))


class Paths:
    """Output of one path per line."""

    def __init__(self) -> None:
        self._by_folder: dict[bytes, list[bytes]] = {}
        self._count = self._kept = 0

    def take(self, lines: list[bytes]) -> None:
        for line in lines:
            folder, slash, name = line.rstrip(b"/").rpartition(b"/")
            self._add(folder + slash, name + b"/" if line.endswith(b"/") else name)

    def _add(self, folder: bytes, name: bytes) -> None:
        self._count += 1
        if self._kept < _NAMES:
            self._kept += 1
            self._by_folder.setdefault(folder, []).append(name)

    def skip(self, lines: int) -> None:
        self._count += lines

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        counts = {"files": self._count}
        if held is not None and fits(held, budget):
            return ShownOutput(lines_of(held), counts)
        found = {folder: len(names) for folder, names in self._by_folder.items()}
        zone = hot_zone(found)
        may_fit = self._kept == self._count <= _PER_TOKEN * budget.tokens
        if may_fit and not budget.counts_only and self.nothing_lost:
            whole = list(self._folded())
            if Room(budget).fill(whole) == whole:
                return ShownOutput(whole, counts, "grouped", False, zone)
        tree = self._tree()
        named = 3 if budget.counts_only else _NAMED
        lines = _condensed(tree, budget, named)
        return ShownOutput(lines, counts, "counts" if budget.counts_only else "grouped", True, zone)

    nothing_lost = True  # names are all that the command prints

    def _folded(self) -> Iterator[bytes]:
        """Every name, grouped by folder."""
        for folder, names in self._by_folder.items():
            shown = [name for name in names if folder + name + b"/" not in self._by_folder] or names
            yield (folder or b"./") + b": " + b" ".join(map(_quoted, shown))

    def _tree(self) -> Folder:
        root = Folder(b"")
        for path, names in self._by_folder.items():
            here = root
            for step in _steps(path):
                below = here.folders.get(step)
                if below is None:
                    below = here.folders[step] = Folder(here.path + step)
                here = below
            here.names += [name for name in names if path + name + b"/" not in self._by_folder]
        _add_up(root)
        while len(root.folders) == 1 and not root.names:
            root = next(iter(root.folders.values()))
        return root


def _steps(path: bytes) -> list[bytes]:
    """The components of a folder's path, each with its slash."""
    return [step + b"/" for step in path.split(b"/")[:-1]]


def _add_up(root: Folder) -> None:
    """Compute totals and kinds from the leaves up; iterative, because trees may exceed Python's stack."""
    order = [root]
    for folder in order:
        order.extend(folder.folders.values())
    for folder in reversed(order):
        folder.kinds.update(_kind(name) for name in folder.names)
        folder.total = len(folder.names)
        for below in folder.folders.values():
            folder.total += below.total
            folder.kinds.update(below.kinds)


def _kind(name: bytes) -> bytes:
    if name.endswith(b"/"):
        return b"folders"
    stem, dot, suffix = name.rpartition(b".")
    return (dot + suffix)[:12] if stem.strip(b".") else b"no suffix"


def _quoted(name: bytes) -> bytes:
    return shlex.quote(readable(name)).encode() if re.search(rb"\s|'", name) else name


class OpenedTree:
    """Lines by folder, and the names that a line stands for without naming them."""

    def __init__(self) -> None:
        self.lines: dict[bytes, bytes] = {}
        self.unnamed: dict[bytes, list[Folder]] = {}
        self.more: dict[bytes, list[bytes]] = {}

    def indexed(self, budget: Budget) -> list[bytes]:
        """The lines, each with the names left out there that occur nowhere else, as far as there is room."""
        room = Room(budget)
        room.fill(self.lines.values())
        listed = names_in(b"\n".join(self.lines.values()))
        done: list[bytes] = []
        for path in sorted(self.lines):
            new = [name for name in names_in(b"\n".join(self._left_out(path))) if name not in listed]
            listed |= dict.fromkeys(new)
            done.append(self.lines[path] + listed_names(new, room, b" with "))
        return [line for line in done if line]

    def _left_out(self, path: bytes) -> Iterator[bytes]:
        yield from self.more.get(path, ())
        for folder in self.unnamed.get(path, ()):
            yield from _names_below(folder)


def _names_below(folder: Folder) -> Iterator[bytes]:
    """Every name in a folder and below it; not of large ones that hold what tools generate."""
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        if here.path.rstrip(b"/").rpartition(b"/")[2] in _MADE_BY_TOOLS and here.total > _CLOSED_LISTED:
            continue
        yield here.path
        yield from here.names
        waiting.extend(here.folders.values())


def _condensed(root: Folder, budget: Budget, named: int) -> list[bytes]:
    """The tree as far as it can be opened, once every name that stays closed has its place in the list."""
    some = islice(_names_below(root), _PER_TOKEN * budget.tokens)  # of more the tree gets its least share anyway
    everything = estimate(b" ".join(names_in(b"\n".join(some))))
    share = max(_OPENED_SHARE, 0.9 - everything / max(budget.tokens, 1))
    return _opened(root, Room(budget, share), named).indexed(budget)


def _opened(root: Folder, room: Room, named: int) -> OpenedTree:
    """Expand the root, then the largest collapsed folder, while there is room."""
    tree = OpenedTree()
    lines, top = tree.lines, True
    waiting = [(0, root.path, root)]
    while waiting and len(lines) < _OPENED:
        _, _, folder = heapq.heappop(waiting)
        inner = [(below, _summary(below)) for below in folder.folders.values()]
        inner.sort(key=lambda pair: -pair[0].total)
        most = _TOP_NAMED if top and named == _NAMED else named
        own = _own(folder, most)
        cost = b"\n".join([*(line for _, line in inner), own])
        if not room.take(cost):
            if not top:
                continue
            inner, own = _as_many_as_fit(inner, own, room)
            tree.unnamed[folder.path] = [
                one for one in folder.folders.values() if one not in [kept for kept, _ in inner]
            ]
        else:
            tree.unnamed.pop(folder.path, None)
        top = False
        lines[folder.path] = own
        tree.more[folder.path] = folder.names[most:]
        for below, line in inner:
            lines[below.path] = line
            tree.unnamed[below.path] = [below]
            if below.path.rstrip(b"/").rpartition(b"/")[2] not in _CLOSED and below.total > 1:
                heapq.heappush(waiting, (-below.total, below.path, below))
    return tree


def _as_many_as_fit(
    inner: list[tuple[Folder, bytes]], own: bytes, room: Room
) -> tuple[list[tuple[Folder, bytes]], bytes]:
    """For a top folder that does not fit: its largest folders, then the number of others."""
    kept = [pair for pair in inner if room.take(pair[1])]
    if len(kept) < len(inner):
        own = f"… and {len(inner) - len(kept):,} more folders; ".encode() + own[:200]
    return kept, own if room.take(own) else own[:200]


def _summary(folder: Folder) -> bytes:
    return folder.path + f"  {folder.total:,} (".encode() + folder.kinds_text() + b")"


def _own(folder: Folder, named: int) -> bytes:
    """A line with a folder's own files, named while they are few."""
    if not folder.names:
        return b"" if folder.folders else (folder.path or b"./")
    names = b" ".join(map(_quoted, folder.names[:named]))
    more = len(folder.names) - named
    left = f" … {more:,} more".encode() if more > 0 else b""
    return (folder.path or b"./") + b": " + names + left


class LsListing(Paths):
    """Output of ls: names, below a folder's name if there are several folders."""

    def __init__(self, *, long: bool) -> None:
        super().__init__()
        self._long, self._folder = long, b""
        self._after_gap = True
        self.nothing_lost = not long

    def take(self, lines: list[bytes]) -> None:
        for line in lines:
            if self._after_gap and line.endswith(b":"):
                self._folder = line[:-1].rstrip(b"/") + b"/"
            elif line and not (self._long and line.startswith(b"total ")):
                self._add(self._folder, self._name(line))
            self._after_gap = not line

    def _name(self, line: bytes) -> bytes:
        if not self._long:
            return line
        words = line.split(None, 8)
        name = words[-1].partition(b" -> ")[0]
        return name + b"/" if line.startswith(b"d") else name
