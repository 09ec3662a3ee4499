"""A question finds the code that answers it, best first; names find definitions, paths and kinds of files count."""

import math
from collections.abc import Collection, Mapping

import pytest
import tantivy

from llmc_mcp.errors import InvalidArgument
from llmc_mcp.rag.parse import words
from llmc_mcp.rag.parse.file import look
from llmc_mcp.rag.parse.question import question
from llmc_mcp.rag.store import embed, features, rank
from llmc_mcp.rag.store import fields as field_queries
from llmc_mcp.rag.store.embed import FileTexts
from llmc_mcp.rag.store.paths import path_kind

from ..support.workspace import require

# --- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identifier", "parts"),
    [
        ("HTTPServer2_fooBar", ["http", "server", "2", "foo", "bar"]),
        ("übergrößen_žluťoučký", ["übergrößen", "žluťoučký"]),
        ("使用redis缓存", ["使用", "redis", "缓存"]),
        ("sendFile", ["send", "file"]),
        ("__init__", ["init"]),
        ("größeÄndern", ["größe", "ändern"]),
        ("x", ["x"]),
        ("___", []),
    ],
)
def test_identifiers_fall_into_their_parts(identifier: str, parts: list[str]) -> None:
    assert words.split(identifier) == parts


@pytest.mark.parametrize(
    "family",
    [
        "parse parser parses parsed parsing",
        "serialize serializer serialization",
        "connect connection connections connector",
        "log logger logging logs",
        "query queries querying",
        "handle handler handling",
    ],
)
def test_forms_of_a_word_have_one_stem(family: str) -> None:
    assert len({words.stem(word) for word in family.split()}) == 1


def test_words_that_only_look_alike_keep_apart() -> None:
    assert words.stem("class") == "class"
    assert words.stem("status") == "status"
    assert words.stem("user") != words.stem("use")
    assert words.stem("event") != words.stem("even")


def test_identifiers_are_indexed_in_parts_and_whole_with_parts_side_by_side() -> None:
    assert words.terms("typeAdapter of type_adapter") == "typ adapt typ adapt typeadapter typeadapter"


def test_what_is_too_long_for_a_word_is_not_indexed() -> None:
    assert words.terms("a" * 65 + " bee") == "bee"
    assert words.terms("404 1234567890 x") == "404"


def test_a_question_loses_its_stop_words_and_keeps_its_names() -> None:
    asked = question("how does HTTPAdapter.send use send_file?")
    assert asked.names == ("HTTPAdapter.send", "send_file")
    assert asked.stems == ("http", "adapt", "send", "send", "fil")
    assert "httpadapter" in asked.words
    assert ("http", "adapt") in asked.pairs
    assert not asked.symbol


@pytest.mark.parametrize("text", ["HTTPAdapter", "session", "Plug.Router", "Sinatra::Base", "`send_file`", "what"])
def test_one_name_alone_is_a_symbol(text: str) -> None:
    assert question(text).symbol


@pytest.mark.parametrize("text", ["", "   ", "?", "the of and", "=> {}"])
def test_a_question_without_words_finds_nothing(text: str) -> None:
    assert Shelf({"a.py": "def a(): ..."}).found(text) == []


# --- ranking -------------------------------------------------------------------------------------------------------


class Shelf:
    """Some files in an index in memory."""

    def __init__(self, files: dict[str, str], embedding: embed.Embedding | None = None) -> None:
        self.names = list(files)
        self.embedding = embedding
        self._vectors: dict[int, bytes] = {}
        self.index = tantivy.Index(rank.SCHEMA)
        self.writer = self.index.writer(16 << 20, 1)
        for file, (path, text) in enumerate(files.items()):
            self.put(file, path, text)
        self.commit()

    def put(self, file: int, path: str, text: str) -> None:
        self.parsed = look(path, text.encode())
        documents = rank.documents(file, self.parsed, text.encode())
        for document in documents:
            self.writer.add_document(tantivy.Document.from_dict(document, rank.SCHEMA))  # pyright: ignore[reportUnknownMemberType]
        if self.embedding is not None:
            self._vectors[file] = rank.vectors(documents, self.embedding)

    def commit(self) -> None:
        self.writer.commit()
        self.index.reload()

    def paths(self, files: Collection[int]) -> Mapping[int, str]:
        return {file: self.names[file] for file in files}

    def vectors(self, files: Collection[int]) -> Mapping[int, bytes]:
        return {file: self._vectors[file] for file in files if file in self._vectors}

    def imports(self, files: Collection[int]) -> Mapping[int, list[int]]:
        return rank.imports_of(self.index.searcher(), files)

    def search(
        self, text: str, scope: rank.Scope = "repo", files: Collection[int] | None = None, limit: int = 10
    ) -> list[rank.ScoredChunk]:
        searcher, asked = self.index.searcher(), question(text)
        ranked = rank.search(searcher, self, asked, scope=scope, files=files, limit=limit, embedding=self.embedding)
        return ranked.chunks

    def found(self, text: str, scope: rank.Scope = "repo", files: Collection[int] | None = None) -> list[str]:
        return [self.names[one.file] for one in self.search(text, scope, files)]


BODY = "    value = compute(everything)\n    return value\n"
LONG = "\n\n".join(f"def step_{number}(cache):\n" + BODY * 12 for number in range(6))


def test_documents_that_fit_better_do_not_push_code_out_of_what_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_DEEP_CHUNKS", "_DEEP_FILES"):
        monkeypatch.setattr(field_queries, name, 10)
    files = {f"docs/page_{number}.md": "evict the cache\n" * 3 for number in range(60)}
    files |= {f"plain_{number}.py": f"def plain_{number}(): ...\n" for number in range(200)}
    shelf = Shelf(files | {"store.py": f"def forget_all():  # evict the whole cache at once\n{BODY}"})
    assert shelf.found("evict cache") == ["store.py"]
    assert shelf.found("evict cache", "docs")[0].startswith("docs/")
    assert len(shelf.found("evict cache", "both")) == 10


def test_a_name_finds_its_definition_before_its_uses() -> None:
    shelf = Shelf(
        {
            "many_uses.py": "PreparedRequest(); PreparedRequest()\n" * 5,
            "models.py": f"class PreparedRequest:\n    def prepare(self):\n{BODY}",
            "sessions.py": f"def prepare_request(request):\n{BODY}",
        }
    )
    assert shelf.found("PreparedRequest")[0] == "models.py"
    assert shelf.found("prepare_request")[0] == "sessions.py"
    assert shelf.found("models.PreparedRequest")[0] == "models.py"


def test_a_name_shows_the_chunk_that_defines_it() -> None:
    shelf = Shelf({"steps.py": LONG})
    (best, *_) = shelf.search("step_4")
    span = shelf.parsed.chunks[best.chunk].span
    assert "def step_4" in "\n".join(LONG.splitlines()[span.first_line - 1 : span.last_line])


def test_every_file_has_one_hit_before_any_has_two() -> None:
    shelf = Shelf({"a.py": LONG, "b.py": LONG, "c.py": "cache = 1\n"})
    found = shelf.found("step cache")
    assert sorted(found[:3]) == ["a.py", "b.py", "c.py"]
    assert sorted(found[3:5]) == ["a.py", "b.py"]
    assert len({(one.file, one.chunk) for one in shelf.search("step cache")}) == len(found)


def test_a_file_named_for_the_question_comes_first() -> None:
    text = f"def run(session, redirect):\n{BODY}"
    shelf = Shelf({"misc.py": text, "redirects.py": text, "other.py": text})
    assert shelf.found("how redirects of a session are followed")[0] == "redirects.py"


def test_words_side_by_side_count_more_than_words_apart() -> None:
    apart = "flow(water)\nriver\ncontrol(gate)\n"
    shelf = Shelf({"a.py": apart, "b.py": "flow_control(water)\nriver\ngate\n", "c.py": apart})
    assert shelf.found("flow control of something")[0] == "b.py"


@pytest.mark.parametrize("aside", ["tests/test_cache.py", "examples/cache.py", "vendor/cache.py"])
def test_tests_examples_and_foreign_code_come_after_the_code_itself(aside: str) -> None:
    text = f"def evict_from_cache(key):\n{BODY}"
    assert Shelf({aside: text, "lib/cache.py": text}).found("evict keys from the cache")[0] == "lib/cache.py"


def test_scopes_keep_code_and_documents_apart() -> None:
    shelf = Shelf({"cache.py": f"def evict(cache):\n{BODY}", "cache.md": "# Cache\n\nHow we evict from the cache.\n"})
    assert shelf.found("evict cache", "repo") == ["cache.py"]
    assert shelf.found("evict cache", "docs") == ["cache.md"]
    assert sorted(shelf.found("evict cache", "both")) == ["cache.md", "cache.py"]


def test_a_search_can_be_restricted_to_some_files() -> None:
    shelf = Shelf({f"{name}.py": f"def evict(cache):\n{BODY}" for name in "abc"})
    assert shelf.found("evict cache", files=[1]) == ["b.py"]
    assert shelf.found("evict cache", files=[]) == []


def test_a_name_of_one_letter_finds_its_definition() -> None:
    assert Shelf({"a.py": f"def f(x):\n{BODY}", "b.py": f"def g(x):\n{BODY}"}).found("g") == ["b.py"]


def test_the_limit_holds_and_is_reached() -> None:
    shelf = Shelf({"a.py": LONG, "b.py": LONG})
    assert len(shelf.search("step cache", limit=1)) == 1
    assert len(shelf.search("step cache", limit=5)) == 5


def test_a_file_that_is_found_by_its_path_alone_shows_its_beginning() -> None:
    shelf = Shelf({"quagga/zebroid.py": "x = 1\n"})
    assert [(one.file, one.chunk) for one in shelf.search("zebroid")] == [(0, 0)]


def test_a_deleted_file_is_found_no_more() -> None:
    shelf = Shelf({"a.py": f"def evict(cache):\n{BODY}", "b.py": f"def evict(cache):\n{BODY}"})
    rank.delete(shelf.writer, 0)
    shelf.commit()
    assert shelf.found("evict cache") == ["b.py"]


@pytest.mark.parametrize(
    "text",
    [
        "a" * 10_000,
        "cache " * 2_000,
        '"unbalanced (query AND OR NOT',
        "file:1 *:* [a TO b]",
        "\0\ud800 cache",
        "🦓 cache",
    ],
)
def test_no_question_breaks_the_search(text: str) -> None:
    Shelf({"a.py": "def evict(cache): ...\n"}).search(text)


@pytest.mark.parametrize("text", ["", "\n\n", "\0\1\2", "🦓" * 100])
def test_files_without_words_can_be_indexed(text: str) -> None:
    shelf = Shelf({"a.py": text, "b.py": "cache = 1\n"})
    assert shelf.found("cache") == ["b.py"]


def test_all_weights_are_of_features_that_there_are() -> None:
    for kind, asked in (("none", "how is it done"), ("name", "Name"), ("task", "It fails\nwhen run")):
        weights = rank.weights_for(question(asked), None)
        assert weights.file.keys() <= set(features.FILE_FEATURES), kind
        assert weights.chunk.keys() <= set(features.CHUNK_FEATURES), kind
        assert weights.file["test"] < 0 < weights.file["text"]
        assert not {"meaning", "file_meaning", "name_meaning"} & weights.file.keys()


# --- meaning -------------------------------------------------------------------------------------------------------


@pytest.fixture
def meaning() -> embed.Embedding:
    require(embed.load("auto") is not None, "numpy")
    made = embed.load("words")
    assert made is not None
    return made


def test_the_setting_names_an_embedding() -> None:
    assert embed.load("none") is None
    with pytest.raises(InvalidArgument, match="unknown embedding: gpt"):
        embed.load("gpt")


def test_code_that_says_it_in_other_words_is_nearer_than_other_code(meaning: embed.Embedding) -> None:
    texts = [words.terms("os.unlink(path); shutil.rmtree(folder)"), words.terms("sock.connect(host)")]
    (blob,) = meaning.of_files([FileTexts("", texts, [None, None])])
    names, mean, (remove, connect) = meaning.nearness(question("delete a directory").stems, {7: blob})[7]
    assert remove > connect
    assert names == 0.0
    assert all(math.isfinite(value) and abs(value) <= 1.05 for value in (mean, remove, connect))


def test_a_file_has_one_small_vector_for_its_names_its_whole_and_each_chunk(meaning: embed.Embedding) -> None:
    (blob,) = meaning.of_files([FileTexts("cache", ["evict", "", "zzzzqqqq"], [None] * 3)])
    assert len(blob) == 5 * 128


def test_the_vectors_of_files_do_not_depend_on_what_they_are_made_with(meaning: embed.Embedding) -> None:
    files = [
        FileTexts("cache", ["evict the oldest entry", "read a file", ""], [None] * 3),
        FileTexts("", [], []),
        FileTexts("socket", ["connect to a host"], [None]),
    ]
    alone = [meaning.of_files([one])[0] for one in files]
    assert meaning.of_files(files) == alone
    known = meaning.split(alone[0])[2:]
    for given in ([known[0], None, None], [None, known[1], known[2]], known):
        again = FileTexts("cache", ["evict the oldest entry", "read a file", ""], given)
        assert meaning.of_files([files[2], again]) == [alone[2], alone[0]]


def test_meaning_changes_the_order_but_a_name_alone_is_left_to_the_letter(meaning: embed.Embedding) -> None:
    files = {
        "a.py": f"def drop(folder):\n    shutil.rmtree(folder)\n{BODY}",
        "b.py": f"def tally(folder):\n    return len(folder)\n{BODY}",
    }
    lexical, both = Shelf(files), Shelf(files, meaning)
    assert both.found("delete a folder recursively")[0] == "a.py"
    assert [one.score for one in lexical.search("folder stuff deleted")] != [
        one.score for one in both.search("folder stuff deleted")
    ]
    assert [one.score for one in lexical.search("tally")] == [one.score for one in both.search("tally")]


def test_files_without_vectors_are_ranked_by_their_words(meaning: embed.Embedding) -> None:
    shelf = Shelf({"a.py": f"def evict(cache):\n{BODY}"}, meaning)
    shelf.vectors = lambda files: {}  # type: ignore[method-assign]
    assert shelf.found("evict from the cache") == ["a.py"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("js_tests/qunit/qunit.js", (1.0, 0.0)),
        ("tests/test_cart.py", (1.0, 0.0)),
        ("contests/cart.py", (0.0, 0.0)),
        ("lib/test_functions.bash", (0.0, 0.0)),
        ("shop/migrations/0001_initial.py", (0.0, 1.0)),
        ("shop/migrations/writer.py", (0.0, 0.0)),
    ],
)
def test_tests_and_generated_migrations_are_known_by_their_paths(path: str, kind: tuple[float, float]) -> None:
    found = path_kind(path)
    assert (found.test, found.aside) == kind


def test_what_one_question_learns_of_files_the_next_one_does_not_look_up() -> None:
    shelf = Shelf({"zoo/zebra.py": "def stripes():\n    return 2\n", "zoo/notes.py": "# stripes of the zebra\n"})
    state, read = field_queries.TextState(), list[set[int]]()

    class Counted(Shelf):
        def __init__(self) -> None:
            self.__dict__.update(shelf.__dict__)

        def paths(self, files: Collection[int]) -> Mapping[int, str]:
            read.append(set(files))
            return super().paths(files)

    answers = [
        rank.search(shelf.index.searcher(), Counted(), question(text), state=state, limit=2).chunks
        for text in ("stripes of the zebra", "zebra stripes", "stripes of the zebra")
    ]
    assert read == [{0, 1}]
    assert answers[0] == answers[2]
    assert set(state.facts) == {0, 1}
    assert state.facts[0][1] == 1  # a function
