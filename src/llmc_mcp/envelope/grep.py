"""grep and rg: definitions first, then uses, then tests; grouped by file.

The command gets three flags more, which change the form of its output and nothing else: file names, line numbers,
and a NUL behind each file name, so that no name or text can be mistaken for another. From a short output they are
removed again, where what the given flags alone would have printed is certain.
"""

import fnmatch
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from .family import Budget, FamilyPlan, Room, ShownOutput, clip, hot_zone, readable, zones
from .flags import FlagSyntax, GivenFlag

_KEPT_HITS = 1_000  # more than any budget can show
_KEPT_DEFINITIONS = 1_000
_KEPT_BYTES = 8 << 20
_KEPT_LINE = 1_000  # bytes of a hit's line that are remembered
_SHOWN_LINE = 240  # bytes of a hit's line that are shown
_OTHER_LINES = 20
_AROUND = 10  # lines of context, to each side, that are shown with a hit
_USES_PER_FILE = 3  # before every file has shown its first
_LONGEST_PATTERN = 4_000  # characters of a pattern that are looked at
_LISTED = 0.2  # share of the room for what is only counted

_GREP = FlagSyntax(
    "efmABCdD",
    frozenset(
        f"--{name}"
        for name in (
            *("regexp", "file", "max-count", "after-context", "before-context", "context", "devices", "directories"),
            *("include", "exclude", "exclude-from", "exclude-dir", "binary-files", "label", "color", "colour"),
        )
    ),
    frozenset(
        f"--{name}"
        for name in (
            *("extended-regexp", "fixed-strings", "basic-regexp", "perl-regexp", "ignore-case", "no-ignore-case"),
            *("word-regexp", "line-regexp", "no-messages", "invert-match", "line-number", "with-filename"),
            *("recursive", "dereference-recursive", "text", "line-buffered"),
        )
    ),
    numbers=True,
)
_GREP_KNOWN = frozenset(f"-{letter}" for letter in "EFGPeifwxyvsnHarRImABCdD") | {"-NUM"}
_RG = FlagSyntax(
    "efgmABCtTdjME",
    frozenset(
        f"--{name}"
        for name in (
            *("regexp", "file", "glob", "iglob", "max-count", "after-context", "before-context", "context", "type"),
            *("type-not", "type-add", "type-clear", "max-depth", "threads", "max-columns", "encoding", "sort"),
            *("sortr", "max-filesize", "ignore-file", "engine", "pre", "pre-glob", "dfa-size-limit", "color"),
        )
    ),
    frozenset(
        f"--{name}"
        for name in (
            *("ignore-case", "smart-case", "case-sensitive", "word-regexp", "line-regexp", "fixed-strings", "hidden"),
            *("no-ignore", "no-ignore-vcs", "no-ignore-parent", "unrestricted", "invert-match", "line-number", "pcre2"),
            *("with-filename", "multiline", "multiline-dotall", "follow", "text", "no-heading", "search-zip", "crlf"),
            *("no-messages", "no-config", "one-file-system", "no-require-git", "glob-case-insensitive", "auto-hybrid"),
        )
    ),
)
_RG_KNOWN = frozenset(f"-{letter}" for letter in "iSswxFefgmABCtTuvnHUPLdjMzEa.")
_GIVES_PATTERN = frozenset({"-e", "--regexp", "-f", "--file"})
_RECURSIVE = frozenset({"-r", "-R", "--recursive", "--dereference-recursive"})
_CONTEXT = frozenset({"-A", "-B", "-C", "-NUM", "--after-context", "--before-context", "--context"})

_NUMBER = re.compile(rb"(\d+)([:-])")
_WILDCARDS = re.compile(rb"[*?[]|\{[^{}]*,[^{}]*\}")
_BRACES = re.compile(rb"\{[^{}]*\}")
_IN_TESTS = re.compile(
    rb"(?:^|/)(?:tests?|testing|specs?|__tests__|testdata|fixtures)/"
    rb"|(?:^|/)(?:test_[^/]*|conftest\.py|[^/]*[_.](?:test|spec|tests)\.\w+)$"
)
_DEFINES = re.compile(
    rb"\s*(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([^)]*\))?|unsafe"
    rb"|extern|inline|virtual|override|sealed|const|declare|local)\s+)*"
    rb"(?:def|class|fn|func|function\*?|interface|struct|enum|type|trait|impl|mod|module|namespace|record|protocol"
    rb"|macro_rules!|union|typedef|var|let|const|val|#\s*define|CREATE\s+(?:TABLE|VIEW|INDEX)|alias)\s+"
    rb"(?:\([^)]*\)\s*)?(?P<name>[\w$.:-]+)"
)
# Without a word that says so: an assignment, a function of C or of a shell. Only at the start of a line.
_DEFINES_ON_TOP = re.compile(
    rb"(?P<set>[A-Za-z_][\w.]*)\s*(?::[^=]+)?=(?!=)"
    rb"|[A-Za-z_][\w \t*&:<>,]*[ \t*&](?P<c>\w+)\s*\([^;]*$"
    rb"|(?P<sh>[\w-]+)\s*\(\)\s*\{"
)
_MAY_DEFINE = re.compile(
    rb"\s*(?:\w+\s+)?(?:def|class|fn|func|function|interface|struct|enum|type|trait|impl|mod|namespace|const|#define)\b"
)

DEFINITION, USE, TEST = 0, 1, 2


class InFile:
    """The matches in one file."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.is_test = _IN_TESTS.search(path) is not None
        self.count = 0
        self.lines: list[tuple[bytes, bytes, bytes]] = []  # number, ":" for a hit or "-" for context, text


class Hit(NamedTuple):
    """A match: its file, where it is among the file's kept lines, and its text."""

    file: InFile
    at: int
    text: bytes


class SearchCommand(NamedTuple):
    """What the words of a search mean."""

    is_rg: bool
    flags: list[GivenFlag]
    wanted: "SearchedTexts | None"
    with_context: bool


def read_search(argv: list[str]) -> SearchCommand | None:
    """The meaning of a search; None if a flag selects another kind of output."""
    program = os.path.basename(argv[0])
    is_rg = program == "rg"
    syntax, known = (_RG, _RG_KNOWN) if is_rg else (_GREP, _GREP_KNOWN)
    flags = list(syntax.parse(argv[1:]))
    if any(flag.name and not _understood(flag.name, flag.value, syntax, known) for flag in flags):
        return None
    names = {flag.name for flag in flags}
    basic = program == "grep" and not names & {"-E", "-P", "--extended-regexp", "--perl-regexp"}
    wanted = _searched_texts([(flag.name, flag.value) for flag in flags], basic=basic)
    return SearchCommand(is_rg, flags, wanted, bool(names & _CONTEXT))


def plan(argv: list[str]) -> FamilyPlan | None:
    """A plan; None if a flag selects another kind of output."""
    search = read_search(argv)
    if search is None:
        return None
    form = ["-nH", "--null", *(["--no-heading", "--color=never"] if search.is_rg else [])]
    family = Grep(search.wanted, with_context=search.with_context)
    own = OwnForm(search.flags, is_rg=search.is_rg)
    words = [argv[0], *form, *argv[1:]]
    return FamilyPlan(words, family, _without_nul, own.restore, any_bytes=True, only_files=own.only_files())


def _without_nul(piece: bytes) -> bytes:
    return piece.replace(b"\0", b":")


def _understood(name: str, value: str, syntax: FlagSyntax, known: frozenset[str]) -> bool:
    if name in ("--color", "--colour"):
        return value in ("never", "auto")
    return name in known or name in syntax.long_values or name in syntax.long_bare


class OwnForm:
    """What a command's own flags print: names of files or not, numbers of lines or not."""

    def __init__(self, flags: list[GivenFlag], *, is_rg: bool, several: bool = False) -> None:
        names = {flag.name for flag in flags}
        given = [os.fsencode(flag.value) for flag in flags if not flag.name]
        self._paths = given if names & _GIVES_PATTERN else given[1:]
        self.numbered = bool(names & {"-n", "--line-number"})
        self._named = several or bool(names & {"-H", "--with-filename"})
        self._recursive = is_rg or bool(names & _RECURSIVE)
        self._is_rg = is_rg
        if is_rg:  # a configuration file may ask for another form
            self._known = "--no-config" in names or "RIPGREP_CONFIG_PATH" not in os.environ
        else:  # -d may stand for -r
            self._known = not names & {"-d", "--directories"}

    def only_files(self) -> tuple[str, ...]:
        """The paths of which a folder is not searched."""
        return tuple(map(os.fsdecode, self._paths)) if self._known and not self._recursive else ()

    def only_path(self) -> bytes | None:
        """The one file that is searched; None where hits have names before them."""
        if self._named or self._recursive or len(self._paths) > 1:
            return None
        return self._paths[0] if self._paths else b"-"

    def undecided_path(self) -> bytes | None:
        """The one operand, if it may stand for a file or for several: a folder, or a name with wildcards."""
        if self._named or len(self._paths) != 1 or not (self._recursive or _WILDCARDS.search(self._paths[0])):
            return None
        return self._paths[0]

    def names_file(self, line: bytes) -> bool:
        """Whether a line of the output begins with the name of a file that the operand stands for."""
        path = self.undecided_path() or b""
        folder = b"/*" if self._recursive and not path.endswith(b"/") else b"*" if self._recursive else b""
        names = re.compile(fnmatch.translate(os.fsdecode(_BRACES.sub(b"*", path) + folder)).encode())
        ends = re.finditer(rb"[:-]\d+[:-]" if self.numbered else rb":", line)
        return any(names.match(line[: end.start()]) for end in ends)

    def pattern(self, *, named: bool) -> re.Pattern[bytes]:
        """What stands before the text of a hit."""
        path = rb"(?P<path>[^:]+):" if named else rb"(?P<path>)"
        return re.compile(path + (rb"(?P<number>\d+):" if self.numbered else rb"(?P<number>)"))

    def restore(self, output: bytes) -> bytes | None:
        """The output without what was added to it; None where that is not certain."""
        if not self._known:
            return None
        lines = output.split(b"\n")
        found = [line.partition(b"\0")[0] for line in lines if b"\0" in line]
        named = self._names_files(found)
        if named is None:
            return None
        restored = [self._restored(line, named) for line in lines]
        return None if None in restored else b"\n".join(line for line in restored if line is not None)

    def _names_files(self, found: list[bytes]) -> bool | None:
        """Whether file names are printed: where several may be searched. What was searched shows in the names."""
        if self._named or len(self._paths) > 1:
            return True
        if not self._recursive or self._paths == [b"-"]:
            return False
        if self._paths:  # a folder's files have longer names
            return any(name != self._paths[0] for name in found)
        if self._is_rg and b"<stdin>" in found:
            return None  # what rg calls its standard input may be a file in this folder, too
        return True

    def _restored(self, line: bytes, named: bool) -> bytes | None:
        name, is_hit, rest = line.partition(b"\0")
        if not is_hit:  # a line between groups; rg's remark on a binary file depends on -H
            return line if named or line in (b"", b"--") else None
        number = _NUMBER.match(rest)
        if number is None:
            return None
        text = rest if self.numbered else rest[number.end() :]
        return name + number[2] + text if named else text


class SearchedTexts(NamedTuple):
    """Literal texts, at least one of which every match contains; the pattern itself is evaluated by grep alone."""

    texts: tuple[bytes, ...]
    any_case: bool

    def meets(self, line: bytes, start: int, end: int) -> bool:
        """Whether one of the texts overlaps this part of a line."""
        line = line.lower() if self.any_case else line
        return any(line.find(text, max(start - len(text) + 1, 0), end + len(text) - 1) >= 0 for text in self.texts)


def _searched_texts(flags: list[tuple[str, str]], *, basic: bool) -> SearchedTexts | None:
    """The searched texts, to distinguish definitions from uses; None if the pattern has no literal text."""
    names = {name for name, _ in flags}
    given = [value for name, value in flags if name in ("-e", "--regexp")]
    if not given and not names & {"-f", "--file"}:
        given = [value for name, value in flags if not name][:1]
    if not given:
        return None
    fixed = bool(names & {"-F", "--fixed-strings"})
    lower = all(text == text.lower() for text in given)
    any_case = bool(names & {"-i", "-y", "--ignore-case"} or (lower and names & {"-S", "--smart-case"}))
    found = [piece for text in given for piece in ([text] if fixed else _literals(text[:_LONGEST_PATTERN], basic))]
    long = [piece for piece in found if len(piece) > 1] or found  # a single letter beside a word is insignificant
    texts = [(piece.lower() if any_case else piece).encode("utf-8", "surrogateescape") for piece in long]
    return SearchedTexts(tuple(dict.fromkeys(texts)), any_case) if texts else None


_OPERATORS = frozenset("(){}|+?")  # plain characters in a basic regular expression, where a backslash makes them these


def _literals(pattern: str, basic: bool) -> Iterator[str]:
    """The runs of plain characters in a regular expression."""
    run: list[str] = []
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        escaped = letter == "\\" and at < len(pattern)
        if escaped:
            letter = pattern[at]
            at += 1
        if letter in _OPERATORS:
            plain = escaped != basic
        else:
            plain = not letter.isalnum() and letter not in "<>`'" if escaped else letter not in "\\.*^$["
        if plain:
            run.append(letter)
            continue
        if letter in "*?{" and run:  # the character before may be missing
            run.pop()
        if run:
            yield "".join(run)
            run = []
        if not escaped and letter == "[":
            at = max(pattern.find("]", at + 1 + pattern.startswith("^", at)) + 1, at)
        elif letter == "{":
            at = max(pattern.find("}", at) + 1, at)
        elif letter == "(" and pattern.startswith("?", at):  # (?i) and (?:…), (?P<name>…)
            ends = [end for end in (pattern.find(mark, at) for mark in ":)>=!") if end >= 0]
            at = min(ends, default=at) + 1
    if run:
        yield "".join(run)


class Grep:
    """Hits by file."""

    def __init__(self, wanted: SearchedTexts | None, *, with_context: bool) -> None:
        self._wanted, self._with_context = wanted, with_context
        self._files: dict[bytes, InFile] = {}
        self._matches = self._kept = self._kept_bytes = self._definitions = 0
        self._others: list[bytes] = []
        self._other_lines = 0
        self._complete = True

    def take(self, lines: list[bytes]) -> None:
        at = 0
        while at < len(lines):
            path, is_hit, _ = lines[at].partition(b"\0")
            if not is_hit:
                self._take_other(lines[at])
                at += 1
                continue
            prefix, end = path + b"\0", at + 1
            while end < len(lines) and lines[end].startswith(prefix):
                end += 1
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = InFile(path)
            self._take_run(file, lines[at:end], len(prefix))
            at = end

    def _take_run(self, file: InFile, lines: list[bytes], start: int) -> None:
        """Lines of one file. Beyond what could ever be shown only the first of each file, and definitions, are kept."""
        for line in lines:
            number = _NUMBER.match(line, start)
            if number is None:
                self._take_other(line.replace(b"\0", b":"))
                continue
            mark = number[2] if self._with_context else b":"
            self._take_hit(file, number[1], mark, line, number.end())

    def _take_hit(self, file: InFile, number: bytes, mark: bytes, line: bytes, start: int) -> None:
        if mark == b":":
            file.count += 1
            self._matches += 1
        if self._kept < _KEPT_HITS or len(file.lines) < _USES_PER_FILE:
            keep = self._kept_bytes < _KEPT_BYTES
        else:
            keep = self._definitions < _KEPT_DEFINITIONS and _MAY_DEFINE.match(line, start) is not None
            self._definitions += keep
        if not keep:
            self._complete = False
            return
        text = line[start : start + _KEPT_LINE + 1]
        file.lines.append((number, mark, text))
        self._kept += 1
        self._kept_bytes += len(text) + 64

    def _take_other(self, line: bytes) -> None:
        """What is no hit: the line between groups, and remarks such as "binary file matches"."""
        if line == b"--":
            return
        self._other_lines += 1
        if self._other_lines <= _OTHER_LINES:
            self._others.append(clip(line, _SHOWN_LINE))
        else:
            self._complete = False

    def skip(self, lines: int) -> None:
        del lines  # hits and context can't be distinguished
        self._complete = False

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        del held  # the same hits under their files' names are always shorter
        if self._other_lines > max(self._matches, _OTHER_LINES):
            raise ValueError("these are not the lines of a search")
        counts = {"matches": self._matches, "files": len(self._files)}
        found = {file.path: file.count for file in self._files.values()}
        if self._complete and not budget.counts_only:
            whole = list(self._everything())
            if (room := Room(budget)).fill(whole) == whole:
                long = any(len(text) > _SHOWN_LINE for file in self._files.values() for _, _, text in file.lines)
                return ShownOutput(whole, counts, "all", long, hot_zone(found))
            del room
        if budget.counts_only:
            return self._counts(found, counts, budget)
        return self._best(found, counts, budget)

    def _everything(self) -> Iterator[bytes]:
        for file in sorted(self._files.values(), key=lambda file: min(map(self._kind, self._hits(file)), default=TEST)):
            yield file.path
            last = b""
            for number, mark, text in file.lines:
                if self._with_context and last and int(number) != int(last) + 1:
                    yield b"--"
                last = number
                yield (number + mark if number else b"") + clip(text, _SHOWN_LINE)
        yield from self._others

    def _hits(self, file: InFile) -> Iterator[Hit]:
        return (Hit(file, at, text) for at, (_, mark, text) in enumerate(file.lines) if mark == b":")

    def _kind(self, hit: Hit) -> int:
        if hit.file.is_test:
            return TEST
        return DEFINITION if self._defines(hit.text) else USE

    def _defines(self, text: bytes) -> bool:
        """Whether the line defines what was searched for, rather than uses it."""
        found = _DEFINES.match(text) or (None if text[:1].isspace() else _DEFINES_ON_TOP.match(text))
        if found is None:
            return False
        return self._wanted is None or self._wanted.meets(text, *found.span(found.lastgroup or 0))

    def _ranked(self) -> Iterator[Hit]:
        """Hits, best first; of each file some uses before more of any."""
        keyed: list[tuple[tuple[int, int, int], Hit]] = []
        for place, file in enumerate(self._files.values()):
            seen = 0
            for hit in self._hits(file):
                kind = self._kind(hit)
                seen += kind != DEFINITION
                keyed.append(((kind, 0 if kind == DEFINITION else seen // _USES_PER_FILE, place), hit))
        keyed.sort(key=lambda pair: pair[0])
        return (hit for _, hit in keyed)

    def _best(self, found: dict[bytes, int], counts: dict[str, int], budget: Budget) -> ShownOutput:
        """The best hits under their files, then where the others are."""
        chosen = self._chosen(Room(budget, 1 - _LISTED))
        lines = [row for path, at in chosen.items() for row in (path, *self._rows(self._files[path], sorted(at)))]
        shown = {path: sum(self._files[path].lines[at][1] == b":" for at in rows) for path, rows in chosen.items()}
        left = {path: count - shown.get(path, 0) for path, count in found.items()}
        left = {path: count for path, count in left.items() if count > 0}
        untouched = {path: count for path, count in left.items() if path not in chosen}
        crumbs = [f"{self._matches - sum(shown.values()):,} more in {zones(left)}"] if left else []
        if untouched:
            crumbs.append(f"{len(untouched):,} files not shown; most in {_most(untouched, budget)}")
        if self._other_lines > _OTHER_LINES:
            crumbs.append(f"{self._other_lines - _OTHER_LINES:,} lines that are no matches left out")
        return ShownOutput([*lines, *self._others], counts, "grouped", True, hot_zone(found), tuple(crumbs))

    def _chosen(self, room: Room) -> dict[bytes, set[int]]:
        """The lines that are shown, by file: the best hits, each with its group where there is context."""
        chosen: dict[bytes, set[int]] = {}
        for hit in self._ranked():
            path, lines = hit.file.path, hit.file.lines
            if hit.at in chosen.get(path, ()):
                continue
            new = self._group_of(hit) - chosen.get(path, set())
            text = b"\n".join([*(_shown(lines[at]) for at in new), *([] if path in chosen else [path])])
            if not room.take(text):
                break
            chosen.setdefault(path, set()).update(new)
        return chosen

    def _group_of(self, hit: Hit) -> set[int]:
        """The lines without a gap around a hit, of many the nearest."""
        if not self._with_context:
            return {hit.at}
        lines, first, last = hit.file.lines, hit.at, hit.at
        while first and hit.at - first < _AROUND and _follows(lines[first - 1], lines[first]):
            first -= 1
        while last + 1 < len(lines) and last - hit.at < _AROUND and _follows(lines[last], lines[last + 1]):
            last += 1
        return set(range(first, last + 1))

    def _rows(self, file: InFile, chosen: list[int]) -> Iterator[bytes]:
        for before, at in zip([-1, *chosen], chosen, strict=False):
            if self._with_context and before >= 0 and not _follows(file.lines[before], file.lines[at]):
                yield b"--"
            yield _shown(file.lines[at])

    def _counts(self, found: dict[bytes, int], counts: dict[str, int], budget: Budget) -> ShownOutput:
        best = sorted(found.items(), key=lambda item: -item[1])
        lines = Room(budget, 0.6).fill(path + b": " + str(count).encode() for path, count in best)
        return ShownOutput(lines, counts, "counts", True, hot_zone(found), (f"{self._matches:,} in {zones(found)}",))


def _shown(line: tuple[bytes, bytes, bytes]) -> bytes:
    number, mark, text = line
    clipped = clip(text.strip() if len(text) > _SHOWN_LINE else text, _SHOWN_LINE // 2)
    return number + mark * bool(number) + clipped


def _follows(line: tuple[bytes, bytes, bytes], after: tuple[bytes, bytes, bytes]) -> bool:
    return int(after[0]) == int(line[0]) + 1


def _most(found: dict[bytes, int], budget: Budget) -> str:
    room, named = Room(budget, _LISTED / 2), list[str]()
    for path, count in sorted(found.items(), key=lambda item: -item[1]):
        if not room.take(path):
            break
        named.append(f"{readable(path)} ({count:,})")
    return ", ".join(named)
