"""Others beside us: what an agent does with ripgrep, plain BM25 over the same chunks, and semble."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import tantivy

from llmc_mcp.files.ripgrep import find_ripgrep
from llmc_mcp.rag.parse import words

from .corpus import Corpus
from .docstrings import CACHE

SEMBLE = CACHE / "semble" / "bin" / "python"
SEMBLE_KINDS = ("BM25 only", "with wordllama")  # its own model would have to be downloaded
_WORD = re.compile(r"\w{3,}")
_LIMIT = 10


class Hit(NamedTuple):
    """A piece of a file that is shown."""

    path: str
    first: int
    last: int


def ripgrep(root: Path, corpus: Corpus, text: str) -> list[Hit]:
    """Files by how many of the question's words they hold, then by how often; an agent reads them from the top."""
    asked = list(dict.fromkeys(word for word in _WORD.findall(text) if word.lower() not in words.STOP))
    kinds: dict[str, int] = {}
    lines: dict[str, int] = {}
    for word in asked:
        command = [find_ripgrep(), "--count", "--ignore-case", "--fixed-strings", "-e", word]
        told = subprocess.run(command, cwd=root, capture_output=True, text=True, errors="replace", check=False)
        for row in told.stdout.splitlines():
            path, _, count = row.rpartition(":")
            kinds[path] = kinds.get(path, 0) + 1
            lines[path] = lines.get(path, 0) + int(count)
    order = sorted(kinds, key=lambda path: (-kinds[path], -lines[path], path))[:_LIMIT]
    longest = {source.path: source.data.count(b"\n") + 1 for source in corpus.sources}
    return [Hit(path, 1, longest.get(path, 1)) for path in order]


class Plain:
    """BM25 over the text of chunks, words as they are; one hit of a file."""

    def __init__(self, corpus: Corpus) -> None:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("text")
        builder.add_unsigned_field("file", fast=True)
        builder.add_unsigned_field("chunk", fast=True)
        self._corpus = corpus
        index = tantivy.Index(builder.build())
        writer = index.writer(64 << 20, 1)
        for file, (parsed, source) in enumerate(zip(corpus.files, corpus.sources, strict=True)):
            for chunk, piece in enumerate(parsed.chunks):
                text = source.data[piece.span.start : piece.span.end].decode(errors="replace")
                document = tantivy.Document()
                document.add_text("text", text)
                document.add_unsigned("file", file)
                document.add_unsigned("chunk", chunk)
                writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        self._index, self._searcher = index, index.searcher()

    def ask(self, text: str) -> list[Hit]:
        query = self._index.parse_query(" ".join(re.findall(r"\w+", text.lower())) or "x", ["text"])
        found = [address for _, address in self._searcher.search(query, 200, count=False).hits]
        files = self._searcher.fast_field_values("file", found)
        chunks = self._searcher.fast_field_values("chunk", found)
        hits: dict[int, Hit] = {}
        for file, chunk in zip(files, chunks, strict=True):
            parsed = self._corpus.files[int(file or 0)]
            span = parsed.chunks[int(chunk or 0)].span
            hits.setdefault(int(file or 0), Hit(parsed.path, span.first_line, span.last_line))
        return list(hits.values())[:_LIMIT]


def semble(folders: Sequence[tuple[str, Sequence[str]]]) -> list[list[list[list[Hit]]]] | None:
    """What semble answers: for each kind, folder and question its hits. None where it is not installed."""
    if not SEMBLE.exists():
        return None
    script = Path(__file__).parent / "semble_answers.py"
    model = str(CACHE / "wordllama-model2vec")
    job = json.dumps({"model": model, "folders": folders})
    told = subprocess.run([str(SEMBLE), str(script)], input=job, capture_output=True, text=True, check=True)
    answers = json.loads(told.stdout.splitlines()[-1])
    return [[[[Hit(*hit) for hit in hits] for hits in folder] for folder in kind] for kind in answers]


class SembleCost(NamedTuple):
    """What it takes semble to index a folder and to answer."""

    built: float  # seconds
    megabytes: float  # at the peak
    took: list[float]  # milliseconds of each question


def semble_cost(root: Path, questions: Sequence[str]) -> SembleCost | None:
    """How long semble takes, and how much memory. None where it is not installed."""
    if not SEMBLE.exists():
        return None
    script = Path(__file__).parent / "semble_cost.py"
    job = json.dumps({"model": str(CACHE / "wordllama-model2vec"), "folder": str(root), "questions": questions})
    told = subprocess.run([str(SEMBLE), str(script)], input=job, capture_output=True, text=True, check=True)
    return SembleCost(**json.loads(told.stdout.splitlines()[-1]))
