"""Search over many repositories: every index of the user whose folder the caller may read.

These indexes are searched as they are: nobody follows the files of a hundred repositories. A hit is shown only if its
file still has the content that was indexed, so nothing that is shown is out of date; what changed since is missing.
Whether a file may be read is decided where every other read is: below the roots, by the policy in force.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ...errors import FeatureUnavailable, InvalidArgument, LlmcError, NotFound
from ...files import names
from ...files.filesystem import Filesystem, Root
from ...kernel import syscalls
from ...kernel.launcher import Launcher
from ...printing import counted
from ..build.parser_process import ParserProcess
from ..parse.question import Question
from ..store.layout import Home, indexed_folders
from ..store.tables import IndexDamaged, IndexTables
from ..store.types import ManyReply, ManyRequest, RankedBuild, RankedChunks
from .folders import root_at
from .globs import Glob
from .hits import HitSource, LoadedHit
from .types import PARTIAL, CodeQuery, QueryCaller

ALL = "*"
_HOW_TO_NAME = "Name repositories by their folder or path; * means all of them."

_CHILD = "llmc_mcp.rag.build.many_child"
_LONGEST_S = 30.0
_MOST = 200  # hits of which a glob leaves some
_SPARE = 4  # hits beyond the limit, should some files have changed
_LISTED_S = 5.0  # how long the list of repositories is taken for current
_OPEN = 32  # databases that stay open
_UNREADABLE = "its index can't be read"
_NAMED = 8  # repositories that a message names
_NEAREST = 3  # names like one that is not known


class Repository(NamedTuple):
    """A folder that is indexed."""

    root: Root
    home: Home

    @property
    def name(self) -> str:
        return os.path.basename(self.root.shown.rstrip("/"))


class FoundIn(NamedTuple):
    """The hits of one repository."""

    root: Root
    hits: list[LoadedHit]
    note: str
    ranked: RankedChunks
    damaged: bool = False  # it was ranked, but can't be read


class Repositories:
    """Every indexed repository below the roots; safe from any thread."""

    def __init__(self, files: Filesystem, launcher: Launcher, data_dir: str, embedding: str) -> None:
        self._files, self._data_dir, self._embedding = files, data_dir, embedding
        self._index_folder = os.path.join(data_dir, "index")
        everything = (os.fsencode(self._index_folder), syscalls.EVERYTHING)  # SQLite's readers write locks
        self._process = ParserProcess(launcher, _CHILD, data_dir, folders=(everything,), address_space=None)
        self._asking = threading.Lock()
        self._listed: tuple[int, float, list[Repository]] = (0, 0.0, [])
        self._roots: dict[str, Root] = {}
        self._tables: dict[str, IndexTables] = {}

    def all(self) -> list[Repository]:
        """The repositories that the caller may read, by path."""
        with self._asking:
            return self._all()

    def _all(self, *, anew: bool = False) -> list[Repository]:
        changed, at, listed = self._listed
        last_change = _changed_at(self._index_folder)
        # A folder that is new there gets its name a moment later: the time of the change alone does not do.
        if anew or not listed or changed != last_change or time.monotonic() - at > _LISTED_S:
            listed = [made for path, home in indexed_folders(self._data_dir) if (made := self._visible(path, home))]
            self._listed = last_change, time.monotonic(), listed
        return listed

    def _visible(self, path: str, home: Home) -> Repository | None:
        """A repository below the roots; nobody learns of any other."""
        try:
            if path not in self._roots:
                self._roots[path] = root_at(self._files, self._files.locate(path))
            return Repository(self._roots[path], home)
        except LlmcError:
            return None

    def search(
        self, query: CodeQuery, question: Question, wanted: Sequence[str], caller: QueryCaller
    ) -> tuple[list[FoundIn], list[str]]:
        """What each repository that answers has found, and notes on the others."""
        with self._asking:
            chosen, shared_names = self._chosen(wanted)
            builds = {build: one for one in chosen if (build := one.home.current()) is not None}
            limit = query.limit + _SPARE if query.path_glob is None else _MOST
            request = ManyRequest(list(builds), question, query.scope, limit, self._embedding)
            reply = self._asked(request)
            caller.check()
            answers = [self._fitting(one, query.path_glob) for one in reply.found if one.build in builds]
            found = self._best(answers, {build: one.root for build, one in builds.items()}, query, question)
        damaged = {builds[build].root for build in reply.damaged if build in builds}
        damaged.update(one.root for one in found if one.damaged)
        unbuilt = {one.root for one in chosen} - {one.root for one in builds.values()}
        searched = len(chosen) - len(damaged) - len(unbuilt)
        unfinished = {
            one.root: reply.unfinished[build]
            for build, one in builds.items()
            if build in reply.unfinished and one.root not in damaged
        }
        missing = [f"{root.shown} is left out: {_UNREADABLE}" for root in _by_path(damaged)]
        missing += [f"{root.shown} is left out: it is not indexed yet" for root in _by_path(unbuilt)]
        if not searched:
            first = _by_path(damaged | unbuilt)[0]
            raise FeatureUnavailable("; ".join(missing), hint=f"rag_index(path={first.shown!r}) builds its index anew.")
        if unfinished:
            found = [_without_unknown(one) for one in found]  # files that come later may hold those words
        notes = [
            *([_partial_note(unfinished)] if unfinished else []),
            f"{counted(searched, 'repository')}, as last indexed",
            *shared_names,
            *(one.note for one in found),
            *missing,
        ]
        # Notes of their own would come before all others, and an answer that is partial begins with that.
        return [one._replace(note="") for one in found], notes

    def _chosen(self, wanted: Sequence[str]) -> tuple[list[Repository], list[str]]:
        """The repositories that are meant, and notes on names that several of them have."""
        if not all(each.strip() for each in wanted):
            raise InvalidArgument("repos contains an empty name", hint=_HOW_TO_NAME)
        known = self._all()
        meant = {each: self._named(each, known) for each in wanted}
        if not all(meant.values()):  # it may have been indexed a moment ago
            known = self._all(anew=True)
            meant = {each: self._named(each, known) for each in wanted}
        missing = [each for each in wanted if not meant[each]]
        if ALL in missing:
            raise NotFound("no repository is indexed", hint="rag_index(path=FOLDER) indexes one.")
        if missing:
            listed = ", ".join(_shown(each) for each in missing)
            raise NotFound(f"no such repository is indexed: {listed}", hint=_hint(missing, known))
        paths = {one.root.path for found in meant.values() for one in found}
        notes = [
            f"{_shown(each)} names {counted(len(found), 'repository')}: {', '.join(one.root.shown for one in found)}"
            for each, found in meant.items()
            if each != ALL and len(found) > 1
        ]
        return [one for one in known if one.root.path in paths], notes

    def _named(self, wanted: str, known: list[Repository]) -> list[Repository]:
        """The repositories that have a name or path, as it is or as it is shown; all of them for the star."""
        if wanted == ALL:
            return known
        spelled = wanted.rstrip("/")
        by_name = [one for one in known if one.name in (spelled, _shown(spelled))]
        return by_name or [one for one in known if one.root.shown == spelled] or self._at(wanted, known)

    def _at(self, path: str, known: list[Repository]) -> list[Repository]:
        """The repository that a path leads to, from the first root if it is relative."""
        try:
            fd = self._files.open(self._files.locate(path), syscalls.O_PATH | os.O_DIRECTORY)
        except LlmcError:
            return []
        real = os.readlink(b"/proc/self/fd/%d" % fd)
        os.close(fd)
        return [one for one in known if one.root.real == real]

    def _asked(self, request: ManyRequest) -> ManyReply:
        """The answer of the process; it reads what was made of hostile files, so it runs confined or not at all."""
        if syscalls.landlock_abi() == 0:
            raise FeatureUnavailable("a search of many repositories needs Landlock, which this kernel lacks")
        try:
            answer = self._process.ask("", msgspec.msgpack.encode(request), _LONGEST_S)
        except OSError as exc:
            raise FeatureUnavailable(f"the indexes could not be searched: {exc.strerror}") from None
        if answer is None:
            raise FeatureUnavailable("the indexes could not be searched", hint="Try again, or name fewer repos.")
        try:
            return msgspec.msgpack.decode(answer, type=ManyReply)
        except msgspec.MsgspecError:  # do not trust one that sends garbage
            self._process.close()
            raise FeatureUnavailable("the indexes could not be searched", hint="Try again.") from None

    def _best(
        self, answers: list[RankedBuild], roots: Mapping[str, Root], query: CodeQuery, question: Question
    ) -> list[FoundIn]:
        """The best hits of all repositories; more of them are read only if files of the best ones have changed."""
        order = _in_order(answers)
        wanted = query.limit
        while True:
            found: list[FoundIn] = []
            for one in answers:
                numbers = sorted(number for build, number in order[:wanted] if build == one.build)
                chunks = [one.ranked.chunks[number] for number in numbers]
                few = msgspec.structs.replace(one, ranked=msgspec.structs.replace(one.ranked, chunks=chunks))
                found.append(self._loaded(roots[one.build], few, query, question))
            found = _each_file_once(found)
            if sum(len(each.hits) for each in found) >= query.limit or wanted >= len(order):
                return found
            wanted = 2 * wanted + _SPARE

    def _loaded(self, root: Root, one: RankedBuild, query: CodeQuery, question: Question) -> FoundIn:
        if not one.ranked.chunks:
            return FoundIn(root, [], "", one.ranked)
        try:
            tables = self._tables_of(one.build)
            tables.catch_up()
            source = HitSource(self._files, root)
            hits, changed = source.load(tables, one.ranked, question, query.limit, one.generation)
        except IndexDamaged:
            self._tables.pop(one.build, None)
            return FoundIn(root, [], "", one.ranked, damaged=True)
        note = f"{root.shown}: {counted(len(changed), 'file')} changed since and left out" if changed else ""
        return FoundIn(root, hits, note, one.ranked)

    def _fitting(self, one: RankedBuild, glob: str | None) -> RankedBuild:
        """The chunks of files whose paths match."""
        if glob is None:
            return one
        pattern = Glob(glob)
        try:
            paths = self._tables_of(one.build).paths({chunk.file for chunk in one.ranked.chunks})
        except IndexDamaged:
            return one  # whoever reads its hits says so
        chunks = [chunk for chunk in one.ranked.chunks if pattern.fits(paths.get(chunk.file, ""))]
        return msgspec.structs.replace(one, ranked=msgspec.structs.replace(one.ranked, chunks=chunks))

    def _tables_of(self, build: str) -> IndexTables:
        tables = self._tables.pop(build, None) or IndexTables(build)
        self._tables[build] = tables  # the last one is the one used last
        for old in list(self._tables)[:-_OPEN]:
            del self._tables[old]
        return tables

    def release_idle(self, idle_s: float) -> bool:
        """End the process if it was asked nothing for a while; whether it was ended."""
        if not self._asking.acquire(blocking=False):
            return False
        try:
            ended = self._process.release_idle(idle_s)
            if ended:
                self._tables.clear()
            return ended
        finally:
            self._asking.release()

    def close(self) -> None:
        """End the process."""
        with self._asking:
            self._process.close()
            self._tables.clear()


def _changed_at(folder: str) -> int:
    """When something was last added to a folder or removed."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _shown(name: str) -> str:
    return names.show(name.encode("utf-8", "surrogatepass"))


def _partial_note(unfinished: Mapping[Root, int]) -> str:
    """Which indexes are not complete, and how far they are."""
    rows = [f"{root.shown} ({counted(unfinished[root], 'file')} so far)" for root in _by_path(unfinished)]
    more = [f"{len(rows) - _NAMED:,} more"] if len(rows) > _NAMED else []
    return f"{PARTIAL}unfinished: {', '.join([*rows[:_NAMED], *more])}"


def _without_unknown(found: FoundIn) -> FoundIn:
    """The same without a word about words that no file holds."""
    terms = msgspec.structs.replace(found.ranked.terms, unknown=[])
    return found._replace(ranked=msgspec.structs.replace(found.ranked, terms=terms))


def _in_order(answers: Iterable[RankedBuild]) -> list[tuple[str, int]]:
    """The chunks of all builds, by build and number, as hits are shown: one of each file first, the best before."""
    rows: list[tuple[int, float, str, int]] = []
    for one in answers:
        seen: Counter[int] = Counter()
        for number, chunk in enumerate(one.ranked.chunks):
            rows.append((seen[chunk.file], -chunk.score, one.build, number))
            seen[chunk.file] += 1
    return [(build, number) for _, _, build, number in sorted(rows)]


def _each_file_once(found: list[FoundIn]) -> list[FoundIn]:
    """The hits without those of files that another repository, around it or within, found with a better score."""
    best: dict[bytes, tuple[float, int, bytes]] = {}  # of two that are equally good, the inner one
    for one in found:
        for hit in one.hits:
            path = os.path.join(one.root.real, hit.path)
            mine = (hit.score, len(one.root.real), one.root.real)
            best[path] = max(best.get(path, mine), mine)
    return [
        one._replace(hits=[hit for hit in one.hits if best[os.path.join(one.root.real, hit.path)][2] == one.root.real])
        for one in found
    ]


def _by_path(roots: Iterable[Root]) -> list[Root]:
    return sorted(roots, key=lambda root: root.path)


def _hint(missing: Sequence[str], known: list[Repository]) -> str:
    """The nearest names, as the caller spelled theirs, and some of the others; paths where several have a name."""
    import difflib

    same_name = Counter(one.name for one in known)
    labels = {one.root.path: one.name if same_name[one.name] == 1 else one.root.shown for one in known}
    by_key: dict[str, list[str]] = {}
    for one in known:
        by_key.setdefault(one.name.lower(), []).append(labels[one.root.path])
        by_key.setdefault(one.root.shown.lower(), []).append(one.root.shown)
    near = [
        label
        for each in missing[:_NEAREST]
        for key in difflib.get_close_matches(
            each.rstrip("/").lower(), [key for key in by_key if ("/" in key) == ("/" in each)], _NEAREST
        )
        for label in by_key[key]
    ]
    near = list(dict.fromkeys(near))[:_NEAREST]
    others = [label for label in labels.values() if label not in near]
    shown = [f"Nearest: {', '.join(near)}."] if near else []
    if others or not near:
        more = " …" if len(others) > _NAMED else ""
        shown.append(f"{'Also indexed' if near else 'Indexed'}: {', '.join(others[:_NAMED]) or 'none'}{more}.")
    return " ".join([*shown, "rag_index(path=FOLDER) indexes another."])
