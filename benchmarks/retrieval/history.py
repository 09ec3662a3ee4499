"""Indexes of a repository at many commits: one index moves from commit to commit, and hard links keep each state.

The text index is made by the functions that make the one on the disk. A file is parsed once per version of it, and
that is kept; only what a commit changes is indexed again.
"""

import shutil
import sqlite3
import subprocess
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import tantivy

from llmc_mcp.rag.parse import file
from llmc_mcp.rag.parse.types import ParsedFile
from llmc_mcp.rag.store import rank
from llmc_mcp.rag.store.embed import Embedding

_HEAP = 64 << 20
_LARGEST = 1 << 20
_STALE = 0.25  # share of the live files that may be replaced before the index is built anew: BM25 counts dead ones
_LINK = "120000"


class Blob(NamedTuple):
    """A version of a file."""

    path: str
    sha: str


class FileTable(msgspec.Struct):
    """The files of a snapshot by their number in the text index."""

    files: dict[int, tuple[str, str]]
    vectors: dict[int, bytes] = {}


class Git:
    """Reads a repository; it needs no work tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reader = subprocess.Popen(
            ["git", "-C", str(folder), "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def close(self) -> None:
        assert self._reader.stdin is not None
        assert self._reader.stdout is not None
        self._reader.stdin.close()
        self._reader.stdout.close()
        self._reader.wait()

    def read(self, sha: str) -> bytes:
        assert self._reader.stdin is not None
        assert self._reader.stdout is not None
        self._reader.stdin.write(f"{sha}\n".encode())
        self._reader.stdin.flush()
        head = self._reader.stdout.readline().split()
        if len(head) != 3:
            return b""  # the mirror lacks its largest files
        data = self._reader.stdout.read(int(head[2]) + 1)
        return data[:-1]

    def time(self, commit: str) -> int:
        return int(self._run("show", "-s", "--format=%ct", commit))

    def tree(self, commit: str, below: str = "") -> list[Blob]:
        """The regular files of a commit below a folder that may be indexed, hidden ones left out."""
        found: list[Blob] = []
        for row in self._run("ls-tree", "-rlz", f"{commit}:{below}").split("\0"):
            if not row:
                continue
            meta, path = row.split("\t", 1)
            mode, kind, sha, size = meta.split()
            hidden = any(part.startswith(".") for part in path.split("/"))
            if kind == "blob" and mode != _LINK and not hidden and size.isdigit() and int(size) <= _LARGEST:
                found.append(Blob(path, sha))
        return found

    def _run(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.folder), *arguments]
        return subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="surrogateescape")


class Parsed:
    """What was parsed from each version of a file, in one SQLite file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA synchronous=OFF")
        for table in ("parsed", "imports"):
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (key TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID"
            )
        self._decoder = msgspec.msgpack.Decoder(ParsedFile)

    def of(self, blob: Blob, git: Git) -> ParsedFile | None:
        """A parsed file; None for one that isn't text."""
        key = f"{blob.sha}:{blob.path}"
        row = self._connection.execute("SELECT data FROM parsed WHERE key=?", (key,)).fetchone()
        if row is not None:
            return self._decoder.decode(row[0]) if row[0] else None
        source = git.read(blob.sha)
        made = None if b"\0" in source[:8192] else file.look(blob.path, source, with_references=False)
        data = b"" if made is None else msgspec.msgpack.encode(made)
        self._connection.execute("INSERT INTO parsed VALUES (?,?)", (key, data))
        return made

    def imports(self, blob: Blob, git: Git) -> list[int]:
        """What a version of a file imports; asked for few of them, and finding it takes longer than the rest."""
        key = f"{blob.sha}:{blob.path}"
        row = self._connection.execute("SELECT data FROM imports WHERE key=?", (key,)).fetchone()
        if row is None:
            row = (msgspec.msgpack.encode(file.look(blob.path, git.read(blob.sha)).imports),)
            self._connection.execute("INSERT INTO imports VALUES (?,?)", (key, *row))
        return msgspec.msgpack.decode(row[0], type=list[int])


class Snapshot:
    """The index of one commit; it is the `Lookup` of its own searches."""

    def __init__(self, folder: Path, git: Git, parsed: Parsed) -> None:
        self._git, self._parsed = git, parsed
        index = tantivy.Index.open(str(folder / "text"))
        self.searcher = index.searcher()
        table = msgspec.msgpack.decode((folder / "files").read_bytes(), type=FileTable)
        self.files = {number: Blob(*blob) for number, blob in table.files.items()}
        self._vectors = table.vectors

    def paths(self, files: Collection[int]) -> Mapping[int, str]:
        return {file: self.files[file].path for file in files if file in self.files}

    def vectors(self, files: Collection[int]) -> Mapping[int, bytes]:
        return {file: self._vectors[file] for file in files if file in self._vectors}

    def imports(self, files: Collection[int]) -> Mapping[int, list[int]]:
        return {file: self._parsed.imports(self.files[file], self._git) for file in files}

    def parsed(self, file: int) -> ParsedFile:
        found = self._parsed.of(self.files[file], self._git)
        assert found is not None
        return found

    def source(self, file: int) -> bytes:
        return self._git.read(self.files[file].sha)


class MovingIndex:
    """The text index of a repository, moved from commit to commit."""

    def __init__(self, folder: Path, git: Git, parsed: Parsed, embedding: Embedding | None) -> None:
        self._folder, self._git, self._parsed, self._embedding = folder, git, parsed, embedding
        self._live: dict[Blob, int] = {}
        self._index: tantivy.Index | None = None
        self._next, self._replaced = 1, 0
        self._vectors: dict[int, bytes] = {}

    def move(self, commit: str, kept: Path, below: str = "") -> None:
        """Index a commit, or a folder of it, and keep the state in `kept`."""
        wanted = set(self._git.tree(commit, below))
        gone, new = set(self._live) - wanted, wanted - set(self._live)
        self._replaced += len(gone)
        if self._index is None or self._replaced > _STALE * len(wanted):
            self._index, gone, new = self._start(), set[Blob](), wanted
        writer = self._index.writer(_HEAP, 1)
        for blob in gone:
            number = self._live.pop(blob)
            if number:
                rank.delete(writer, number)
        self._add(writer, sorted(new))
        writer.commit()
        writer.wait_merging_threads()
        self._keep(kept)

    def _start(self) -> tantivy.Index:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._live.clear()
        self._vectors.clear()
        self._replaced = 0
        return tantivy.Index(rank.schema(), path=str(self._folder))

    def _add(self, writer: tantivy.IndexWriter, blobs: Iterable[Blob]) -> None:
        for blob in blobs:
            parsed = self._parsed.of(blob, self._git)
            if parsed is None:
                self._live[blob] = 0
                continue
            number, self._next = self._next, self._next + 1
            self._live[blob] = number
            documents = rank.documents(number, parsed, self._git.read(blob.sha))
            if self._embedding is not None and parsed.chunks:
                self._vectors[number] = rank.vectors(documents, self._embedding)
            for fields in documents:
                writer.add_document(tantivy.Document.from_dict(fields, rank.SCHEMA))  # pyright: ignore[reportUnknownMemberType]

    def _keep(self, kept: Path) -> None:
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        shutil.copytree(self._folder, kept / "text", copy_function=_link)
        table = FileTable(
            {number: (blob.path, blob.sha) for blob, number in self._live.items() if number}, self._vectors
        )
        (kept / "files").write_bytes(msgspec.msgpack.encode(table))


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)
