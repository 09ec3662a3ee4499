"""One search over many repositories: every one that is indexed and that the caller may read."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.errors import NotFound
from llmc_mcp.kernel import syscalls
from llmc_mcp.rag.query.search import CodeQuery, SearchResult

from ..support import forked
from ..support.library import Library, library_on
from ..support.workspace import SECRET, require

FILES = {
    "bakery/oven.py": "def preheat_the_oven(degrees):\n    return heat(degrees)\n",
    "bakery/dough.py": "def knead_the_dough(minutes):\n    return rest(minutes)\n",
    "harbour/crane.py": "def unload_the_ship(containers):\n    return [lift(one) for one in containers]\n",
    "harbour/oven.py": "def clean(oven):\n    return oven\n",
    "outside/oven.py": "def preheat_another_oven(degrees):\n    return heat(degrees)\n",
}


@pytest.fixture(autouse=True)
def landlock() -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def base(tmp_path: Path, data: Path) -> Path:
    """Two repositories in one folder and one beside it, all indexed."""
    for name, text in FILES.items():
        folder = tmp_path / ("elsewhere" if name.startswith("outside") else "projects")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / ".git").mkdir(exist_ok=True)
    for root in (tmp_path / "projects/bakery", tmp_path / "projects/harbour", tmp_path / "elsewhere/outside"):
        with library_on(root, data) as library:
            library.refresh()
    return tmp_path


@pytest.fixture
def library(base: Path, data: Path) -> Iterator[Library]:
    """A server whose root is the folder of the two; only one of them is indexed for itself."""
    config = Config()
    config.rag.roots = (str(base / "projects/bakery"),)
    with library_on(base / "projects", data, config) as made:
        yield made


def ask(library: Library, text: str, *repos: str) -> SearchResult:
    return library.rag.search(CodeQuery(text, limit=5, budget=2_000, repos=repos), library.caller())


def found(answer: SearchResult, base: Path) -> list[str]:
    return [os.path.relpath(f"{hit.root.shown}/{os.fsdecode(hit.path)}", base) for hit in answer.hits]


def test_all_repositories_below_the_roots_are_searched_and_no_other(library: Library, base: Path) -> None:
    assert found(ask(library, "preheat the oven", "*"), base)[0] == "projects/bakery/oven.py"
    assert found(ask(library, "unload_the_ship", "*"), base)[0] == "projects/harbour/crane.py"
    for text in ("preheat another oven", "preheat_another_oven"):
        assert not any("outside" in path for path in found(ask(library, text, "*"), base))
    assert "2 repositories" in ask(library, "oven", "*").freshness


def test_repositories_are_named_by_folder_or_path(library: Library, base: Path) -> None:
    assert found(ask(library, "oven", "harbour"), base) == ["projects/harbour/oven.py"]
    assert found(ask(library, "oven", str(base / "projects/harbour")), base) == ["projects/harbour/oven.py"]
    for name in ("nowhere", "outside", str(base / "elsewhere/outside")):
        with pytest.raises(NotFound) as caught:
            ask(library, "oven", name)
        assert "outside" not in (caught.value.hint or "")


def test_a_glob_restricts_what_is_found_in_each(library: Library, base: Path) -> None:
    query = CodeQuery("oven", limit=5, budget=2_000, path_glob="dough*", repos=("*",))
    assert library.rag.search(query, library.caller()).hits == []
    oven = library.rag.search(query._replace(path_glob="ov*.py"), library.caller())
    assert sorted(found(oven, base)) == ["projects/bakery/oven.py", "projects/harbour/oven.py"]


def test_the_best_hits_of_all_repositories_come_first_whichever_they_are_of(library: Library, base: Path) -> None:
    answer = ask(library, "oven", "*")
    assert sorted(found(answer, base)[:2]) == ["projects/bakery/oven.py", "projects/harbour/oven.py"]
    scores = [hit.score for hit in answer.hits]
    assert scores == sorted(scores, reverse=True)


def test_what_changed_since_it_was_indexed_is_left_out_and_that_is_said(library: Library, base: Path) -> None:
    (base / "projects/harbour/crane.py").write_text(f"# {SECRET}\n")
    answer = ask(library, "unload_the_ship", "harbour")
    assert answer.hits == []
    assert "changed since" in answer.freshness


def test_the_next_best_hit_of_any_repository_takes_the_place_of_one_that_changed(library: Library, base: Path) -> None:
    query = CodeQuery("oven", limit=1, budget=2_000, repos=("*",))
    (first,) = found(library.rag.search(query, library.caller()), base)
    (base / first).write_text("changed = True\n")
    (second,) = found(library.rag.search(query, library.caller()), base)
    assert {first, second} == {"projects/bakery/oven.py", "projects/harbour/oven.py"}


def test_a_secret_name_is_refused_by_the_policy_in_force(base: Path, data: Path) -> None:
    config = Config()
    config.policy.secret_names = ("crane.py",)
    with library_on(base / "projects", data, config) as strict:
        assert found(ask(strict, "unload_the_ship", "harbour"), base) == []


# --- a person --------------------------------------------------------------------------------------------------------


def llmc(cwd: Path, data: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return forked.llmc(*words, cwd=cwd, env={**os.environ, "LLMC_DATA_DIR": str(data)})


def test_a_person_searches_all_their_repositories_from_anywhere(base: Path, data: Path, tmp_path: Path) -> None:
    done = llmc(tmp_path, data, "search", "--all", "preheat_another_oven")
    assert done.returncode == 0
    assert done.stdout.startswith("elsewhere/outside/oven.py:1  function preheat_another_oven")
    rows = json.loads(llmc(base, data, "search", "--all", "--json", "knead_the_dough").stdout)
    assert (rows[0]["root"], rows[0]["path"]) == (str(base / "projects/bakery"), "dough.py")


def test_repositories_are_listed_added_and_forgotten(base: Path, data: Path) -> None:
    listed = json.loads(llmc(base, data, "repos", "list", "--json").stdout)
    assert [(Path(row["path"]).name, row["files"], row["state"]) for row in listed] == [
        ("outside", 1, "complete"),
        ("bakery", 2, "complete"),
        ("harbour", 2, "complete"),
    ]
    (base / "new").mkdir()
    (base / "new/fresh.py").write_text("def start_afresh(): ...\n")
    assert llmc(base, data, "repos", "add", "new").returncode == 0
    assert "new" in llmc(base, data, "repos").stdout
    assert llmc(base, data, "repos", "forget", "new").returncode == 0
    assert (base / "new/fresh.py").exists()
    assert "/new " not in llmc(base, data, "repos").stdout
    gone = llmc(base, data, "repos", "forget", "new")
    assert (gone.returncode, "not indexed" in gone.stderr) == (2, True)
