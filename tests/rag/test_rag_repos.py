"""One search over many repositories: every one that is indexed and that the caller may read."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.errors import Cancelled, FeatureUnavailable, InvalidArgument, NotFound
from llmc_mcp.kernel import syscalls
from llmc_mcp.rag.query.search import CodeQuery, SearchResult
from llmc_mcp.rag.store.layout import Home, home_of
from llmc_mcp.rag.store.tables import IndexTables

from ..support import forked
from ..support.library import Library, keepers, library_on, never
from ..support.talk import eventually
from ..support.workspace import SECRET, require

FILES = {
    "bakery/oven.py": "def preheat_the_oven(degrees):\n    return heat(degrees)\n",
    "bakery/dough.py": "def knead_the_dough(minutes):\n    return rest(minutes)\n",
    "harbour/crane.py": "def unload_the_ship(containers):\n    return [lift(one) for one in containers]\n",
    "harbour/oven.py": "def clean(oven):\n    return oven\n",
    "outside/oven.py": "def preheat_another_oven(degrees):\n    return heat(degrees)\n",
}


@pytest.fixture(scope="module", autouse=True)
def landlock() -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")


def indexed(base: Path) -> Path:
    """Two repositories in one folder and one beside it, all indexed; the data directory is beside them."""
    for name, text in FILES.items():
        folder = base / ("elsewhere" if name.startswith("outside") else "projects")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / ".git").mkdir(exist_ok=True)
    for root in (base / "projects/bakery", base / "projects/harbour", base / "elsewhere/outside"):
        with library_on(root, base / "data") as library:
            library.refresh()
    return base


def serve(base: Path) -> AbstractContextManager[Library]:
    """A server whose root is the folder of the two; only one of them is indexed for itself."""
    config = Config()
    config.rag.roots = (str(base / "projects/bakery"),)
    return library_on(base / "projects", base / "data", config)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests that change nothing."""
    return indexed(tmp_path_factory.mktemp("repositories"))


@pytest.fixture(scope="module")
def library(base: Path) -> Iterator[Library]:
    with serve(base) as made:
        yield made


@pytest.fixture
def own_base(tmp_path: Path) -> Path:
    """For a test that changes something."""
    return indexed(tmp_path)


@pytest.fixture
def own_library(own_base: Path) -> Iterator[Library]:
    with serve(own_base) as made:
        yield made


def repository(base: Path, name: str, code: str) -> Path:
    """A repository with one file, indexed."""
    folder = base / name
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    (folder / "code.py").write_text(code)
    with library_on(folder, base / "data") as library:
        library.refresh()
    return folder


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


def test_a_path_may_be_relative_to_the_root_or_lead_over_a_link(own_library: Library, own_base: Path) -> None:
    repository(own_base, "projects/deep/quay", "def moor_the_ship(): ...\n")
    (own_base / "projects/link").symlink_to("deep/quay")
    for name in ("deep/quay", "./deep/quay/", "link"):
        assert found(ask(own_library, "moor_the_ship", name), own_base) == ["projects/deep/quay/code.py"]
    for name in ("deep", "../elsewhere/outside", "deep/quay/code.py"):
        with pytest.raises(NotFound):
            ask(own_library, "oven", name)


def test_an_unknown_name_beside_the_star_is_refused_like_any(library: Library) -> None:
    with pytest.raises(NotFound) as caught:
        ask(library, "oven", "*", "nosuch")
    assert caught.value.message == "no such repository is indexed: nosuch"
    assert "2 repositories" in ask(library, "oven", "*", "harbour").freshness


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_refused(library: Library, name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        ask(library, "oven", name)
    assert caught.value.message == "repos contains an empty name"


def test_a_name_that_two_repositories_have_means_both_and_their_paths_are_told(
    own_library: Library, own_base: Path
) -> None:
    repository(own_base, "projects/old/harbour", "def sink_the_ship(): ...\n")
    both = f"{own_base / 'projects/harbour'}, {own_base / 'projects/old/harbour'}"
    answer = ask(own_library, "ship", "harbour")
    assert sorted(found(answer, own_base)) == ["projects/harbour/crane.py", "projects/old/harbour/code.py"]
    assert f"; harbour names 2 repositories: {both}" in answer.freshness
    assert found(ask(own_library, "ship", "./harbour"), own_base) == ["projects/harbour/crane.py"]
    for name, hint in (("habour", f"Nearest: {both}. Also indexed: bakery."), ("zzz", f"Indexed: bakery, {both}.")):
        with pytest.raises(NotFound) as caught:
            ask(own_library, "ship", name)
        assert (caught.value.hint or "").startswith(hint)


@pytest.mark.parametrize("name", ["late", "*"])
def test_a_repository_that_was_indexed_a_moment_ago_is_found(own_library: Library, own_base: Path, name: str) -> None:
    assert "2 repositories" in ask(own_library, "oven", "*").freshness
    repository(own_base, "projects/late", "def arrive_too_late(): ...\n")
    assert found(ask(own_library, "arrive_too_late", name), own_base) == ["projects/late/code.py"]


def test_what_was_indexed_since_the_last_search_is_found(own_library: Library, own_base: Path) -> None:
    ask(own_library, "oven", "*")
    repository(own_base, "projects/harbour", "def xylophone(): ...\n")
    assert found(ask(own_library, "xylophone", "*"), own_base)[:1] == ["projects/harbour/code.py"]


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


def test_what_changed_since_it_was_indexed_is_left_out_and_that_is_said(own_library: Library, own_base: Path) -> None:
    (own_base / "projects/harbour/crane.py").write_text(f"# {SECRET}\n")
    answer = ask(own_library, "unload_the_ship", "harbour")
    assert answer.hits == []
    assert "changed since" in answer.freshness


def test_the_next_best_hit_of_any_repository_takes_the_place_of_one_that_changed(
    own_library: Library, own_base: Path
) -> None:
    query = CodeQuery("oven", limit=1, budget=2_000, repos=("*",))
    (first,) = found(own_library.rag.search(query, own_library.caller()), own_base)
    (own_base / first).write_text("changed = True\n")
    (second,) = found(own_library.rag.search(query, own_library.caller()), own_base)
    assert {first, second} == {"projects/bakery/oven.py", "projects/harbour/oven.py"}


def test_a_file_of_two_repositories_one_within_the_other_is_shown_once(own_library: Library, own_base: Path) -> None:
    for name in ("bakery", "harbour"):  # else the one around would leave them out
        (own_base / "projects" / name / ".git").rmdir()
    with library_on(own_base / "projects", own_base / "data") as around:
        around.refresh()
    query = CodeQuery("oven", limit=4, budget=2_000, repos=("*",))
    answer = own_library.rag.search(query, own_library.caller())
    assert "3 repositories" in answer.freshness
    assert sorted(found(answer, own_base)) == ["projects/bakery/oven.py", "projects/harbour/oven.py"]
    (own_base / "projects/bakery/oven.py").write_text("def freeze_the_bread(): ...\n")
    with library_on(own_base / "projects", own_base / "data") as around:
        around.refresh()
    answer = own_library.rag.search(query._replace(text="freeze_the_bread"), own_library.caller())
    assert found(answer, own_base)[0] == "projects/bakery/oven.py"  # from the index that knows its content


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, and a third repository, whose first build was called off after its first commit."""
    base = indexed(tmp_path_factory.mktemp("unfinished"))
    shipyard = base / "projects/shipyard"
    (shipyard / ".git").mkdir(parents=True)
    for number in range(1_500):
        (shipyard / f"ship_{number}.py").write_text(f"def launch_ship_{number}():\n    return {number}\n")

    def check() -> None:
        if files_of(base, shipyard):
            raise Cancelled("enough")

    with library_on(shipyard, base / "data") as library, pytest.raises(Cancelled):
        library.rag.refresh(None, False, library.caller(check))
    assert eventually(lambda: keepers(shipyard) == [])
    assert 0 < files_of(base, shipyard) < 1_500
    return base


def files_of(base: Path, folder: Path) -> int:
    """How many files the index of a folder has so far."""
    build = home_of(str(base / "data"), os.fsencode(folder)).current()
    return len(IndexTables(build).all_paths()) if build is not None else 0


def test_an_answer_says_which_repositories_are_not_wholly_indexed_and_how_far_they_are(unfinished: Path) -> None:
    shipyard = unfinished / "projects/shipyard"
    partial = f"partial: unfinished: {shipyard} ({files_of(unfinished, shipyard):,} files so far)"
    with serve(unfinished) as library:
        (unfinished / "projects/harbour/oven.py").write_text("def forget(): ...\n")
        answer = ask(library, "oven", "*")
        assert answer.freshness.startswith(f"{partial}; 3 repositories, as last indexed; {unfinished}/projects/harbour")
        assert "partial" not in ask(library, "oven", "bakery").freshness
        nothing = ask(library, "zzyzx_quux", "shipyard")
        assert nothing.freshness == f"{partial}; 1 repository, as last indexed"
        assert "no file holds" not in nothing.hint
    assert f"note: {partial}; 4 repositories" in llmc(unfinished, "search", "--all", "knead_the_dough").stderr


def damage(base: Path, name: str) -> None:
    """Overwrite every file of an index."""
    (home,) = [
        note.parent for note in (base / "data/index").glob("*/root") if Path(note.read_text().strip()).name == name
    ]
    for path in (home / "current").resolve().rglob("*"):
        if path.is_file():
            path.write_bytes(b"\x00garbage\xff" * 100)


def test_a_damaged_index_is_left_out_and_not_counted(own_library: Library, own_base: Path) -> None:
    damage(own_base, "harbour")
    answer = ask(own_library, "oven", "*")
    assert found(answer, own_base) == ["projects/bakery/oven.py"]
    harbour = own_base / "projects/harbour"
    assert answer.freshness == f"1 repository, as last indexed; {harbour} is left out: its index can't be read"


def test_where_no_index_can_be_searched_nobody_is_told_to_use_other_words(own_library: Library, own_base: Path) -> None:
    damage(own_base, "harbour")
    with pytest.raises(FeatureUnavailable) as caught:
        ask(own_library, "oven", "harbour")
    harbour = own_base / "projects/harbour"
    assert caught.value.message == f"{harbour} is left out: its index can't be read"
    assert caught.value.hint == f"rag_index(path='{harbour}') builds its index anew."


def test_an_unknown_name_is_answered_with_the_nearest_ones_first(library: Library, base: Path) -> None:
    for name, nearest in (
        ("Habour", "Nearest: harbour. Also indexed: bakery."),
        (str(base / "projects/backery"), f"Nearest: {base / 'projects/bakery'}, {base / 'projects/harbour'}."),
        ("zzz", "Indexed: bakery, harbour."),
    ):
        with pytest.raises(NotFound) as caught:
            ask(library, "oven", name)
        assert (caught.value.hint or "").startswith(nearest)


def test_an_error_names_few_of_many_repositories(own_base: Path) -> None:
    for number in range(12):
        folder = own_base / f"projects/ship_{number}"
        folder.mkdir()
        home = Path(home_of(str(own_base / "data"), os.fsencode(folder)).folder)
        home.mkdir()
        (home / "root").write_text(f"{folder}\n")
    with serve(own_base) as many, pytest.raises(NotFound) as caught:
        ask(many, "oven", "ship_111")
    hint = caught.value.hint or ""
    assert hint.startswith("Nearest: ship_11, ")
    assert hint.count("ship_") <= 11
    assert " …. rag_index" in hint


def test_a_secret_name_is_refused_by_the_policy_in_force(base: Path) -> None:
    config = Config()
    config.policy.secret_names = ("crane.py",)
    with library_on(base / "projects", base / "data", config) as strict:
        assert found(ask(strict, "unload_the_ship", "harbour"), base) == []


# --- a person --------------------------------------------------------------------------------------------------------


def llmc(base: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return forked.llmc(*words, cwd=base, env={**os.environ, "LLMC_DATA_DIR": str(base / "data")})


def test_a_person_searches_all_their_repositories_from_anywhere(base: Path) -> None:
    done = llmc(base, "search", "--all", "preheat_another_oven")
    assert done.returncode == 0
    assert done.stdout.startswith("elsewhere/outside/oven.py:1  function preheat_another_oven")
    rows = json.loads(llmc(base, "search", "--all", "--json", "knead_the_dough").stdout)
    assert (rows[0]["root"], rows[0]["path"]) == (str(base / "projects/bakery"), "dough.py")


def test_repositories_are_listed_added_and_forgotten(own_base: Path) -> None:
    listed = json.loads(llmc(own_base, "repos", "list", "--json").stdout)
    assert [(Path(row["path"]).name, row["files"], row["state"]) for row in listed] == [
        ("outside", 1, "complete"),
        ("bakery", 2, "complete"),
        ("harbour", 2, "complete"),
    ]
    (own_base / "new").mkdir()
    (own_base / "new/fresh.py").write_text("def start_afresh(): ...\n")
    assert llmc(own_base, "repos", "add", "new").returncode == 0
    assert "new" in llmc(own_base, "repos").stdout
    assert llmc(own_base, "repos", "forget", "new").returncode == 0
    assert (own_base / "new/fresh.py").exists()
    assert "/new " not in llmc(own_base, "repos").stdout
    gone = llmc(own_base, "repos", "forget", "new")
    assert (gone.returncode, "not indexed" in gone.stderr) == (2, True)


def state_of(base: Path, name: str) -> str:
    """The end of the line of a repository, after its size and time."""
    (line,) = [line for line in llmc(base, "repos").stdout.splitlines() if f"/{name}  " in line]
    return line.partition("Z")[2]


def test_an_index_that_nobody_builds_is_called_unfinished(unfinished: Path) -> None:
    assert state_of(unfinished, "bakery") == ""
    assert state_of(unfinished, "shipyard") == ", unfinished: the next search there or llmc repos add goes on with it"
    rows = json.loads(llmc(unfinished, "repos", "list", "--json").stdout)
    assert [row["state"] for row in rows if row["path"].endswith("shipyard")] == ["unfinished"]
    home = home_of(str(unfinished / "data"), os.fsencode(unfinished / "projects/shipyard"))
    with home.writing(never):
        assert state_of(unfinished, "shipyard") == ", being built"


def test_to_ask_whether_an_index_is_written_leaves_nothing_behind(tmp_path: Path) -> None:
    home = Home(str(tmp_path))
    assert not home.is_being_written()
    assert list(tmp_path.iterdir()) == []


WEIRD = {
    "control": (b"we\n\x1b[31mird", r"we\x0a\x1b[31mird"),
    "not UTF-8": (b"caf\xe9", r"caf\xe9"),
    "like an escape": (rb"we\x0aird", r"we\x5cx0aird"),
}


@pytest.mark.parametrize("kind", WEIRD)
def test_a_folder_of_any_name_is_indexed_listed_searched_and_forgotten(own_base: Path, kind: str) -> None:
    name, shown = WEIRD[kind]
    folder = os.path.join(os.fsencode(own_base), b"projects", name)
    os.makedirs(os.path.join(folder, b".git"))
    with open(os.path.join(folder, b"code.py"), "w") as file:
        file.write("def count_the_sheep(): ...\n")
    place = f"{own_base}/projects/{shown}"
    for spelled in (os.fsdecode(folder), place, f"projects/{shown}"):
        added = llmc(own_base, "repos", "add", spelled)
        assert (added.returncode, added.stdout) == (0, f"{place}: 1 file, 1 chunk, 1 symbol\n"), added.stderr
        rows = json.loads(llmc(own_base, "repos", "list", "--json").stdout)
        assert [row["state"] for row in rows if row["path"] == place] == ["complete"]
        assert f"{place}  1 file" in llmc(own_base, "repos").stdout
        assert llmc(own_base, "search", "--all", "count_the_sheep").stdout.startswith(f"projects/{shown}/code.py:1  ")
        forgotten = llmc(own_base, "repos", "forget", spelled)
        assert (forgotten.returncode, forgotten.stderr) == (0, f"forgot {place}\n")
    again = llmc(own_base, "repos", "forget", os.fsdecode(folder))
    assert (again.returncode, again.stderr.splitlines()[0]) == (2, f"llmc: {place} is not indexed")


def test_a_server_finds_a_repository_by_its_real_and_by_its_shown_name(own_library: Library, own_base: Path) -> None:
    folder = own_base / "projects/we\n\x1bird"
    repository(own_base, str(folder), "def count_the_sheep(): ...\n")
    shown = r"we\x0a\x1bird"
    for name in (folder.name, str(folder), shown, f"{own_base}/projects/{shown}", f"./{shown}"):
        answer = ask(own_library, "count_the_sheep", name)
        assert [hit.root.shown for hit in answer.hits] == [f"{own_base}/projects/{shown}"]
    with pytest.raises(NotFound) as caught:
        ask(own_library, "oven", "we\nired")
    assert caught.value.message == r"no such repository is indexed: we\x0aired"


def test_of_two_folders_that_a_name_may_mean_the_one_that_has_it_is_forgotten(own_base: Path) -> None:
    for name in ("we\nird", r"we\x0aird"):
        repository(own_base, f"projects/{name}", "def count_the_sheep(): ...\n")
    assert llmc(own_base, "repos", "forget", r"projects/we\x0aird").stderr == (
        f"forgot {own_base}/projects/we\\x5cx0aird\n"
    )
    assert llmc(own_base, "repos", "forget", r"projects/we\x0aird").stderr == (
        f"forgot {own_base}/projects/we\\x0aird\n"
    )


def test_each_hit_in_json_says_how_current_the_answer_is(base: Path) -> None:
    rows = json.loads(llmc(base, "search", "--all", "--json", "oven").stdout)
    assert {row["freshness"] for row in rows} == {"3 repositories, as last indexed"}
    rows = json.loads(llmc(base / "projects/bakery", "search", "--json", "oven").stdout)
    assert {row["freshness"] for row in rows} == {"fresh"}


def test_the_time_of_a_repository_is_that_of_the_last_write_however_often_it_is_listed(own_base: Path) -> None:
    for database in (own_base / "data").glob("index/*/current/index.db"):
        os.utime(database, (1_000_000_000, 1_000_000_000))
    for _ in range(2):
        rows = json.loads(llmc(own_base, "repos", "list", "--json").stdout)
        assert {row["updated_iso"] for row in rows} == {"2001-09-09T01:46:40Z"}


def test_one_file_is_counted_as_one(own_base: Path) -> None:
    assert "/outside  1 file, 1 chunk, " in llmc(own_base, "repos").stdout
    assert ": 1 file, 1 chunk, 1 symbol\n" in llmc(own_base, "index", "elsewhere/outside").stdout


def test_whoever_forgets_a_folder_of_a_repository_is_told_which_one_holds_it(own_base: Path) -> None:
    (own_base / "projects/harbour/cranes").mkdir()
    done = llmc(own_base, "repos", "forget", "projects/harbour/cranes")
    harbour = own_base / "projects/harbour"
    assert (done.returncode, done.stderr) == (
        2,
        f"llmc: projects/harbour/cranes is not indexed by itself: it belongs to {harbour}\n"
        f"hint: llmc repos forget {harbour} forgets all of that.\n",
    )


def test_what_a_library_says_of_a_damaged_index_is_not_told(own_base: Path) -> None:
    bakery = own_base / "projects/bakery"
    with library_on(bakery, own_base / "data") as library:
        shutil.rmtree(library.build / "text")
        told = library.ask("oven").freshness
    assert told == "rebuilt: it was damaged (its text can't be searched)"
