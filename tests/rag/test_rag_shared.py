"""Servers on one root and data directory share one indexing process; whichever server ends, the others go on."""

import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.kernel import syscalls
from llmc_mcp.rag.query.search import CodeQuery, GraphView
from llmc_mcp.rag.store.tables import IndexTables

from ..support.client import Client, Reply, exit_code
from ..support.library import Library, keepers, library_on
from ..support.processes import children_of
from ..support.talk import eventually
from ..support.workspace import Workspace, require

ZEBRA = "def paint_zebra(stripes):\n    return [black(stripe) for stripe in stripes]\n"
NEVER = 3_600.0


@pytest.fixture(autouse=True)
def landlock() -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")


@pytest.fixture
def root(workspace: Workspace) -> Path:
    workspace.file("zoo/zebra.py", ZEBRA)
    workspace.file("zoo/lion.py", "def roar_loudly():\n    return 'roar'\n")
    return workspace.root


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def idle_after(seconds: float) -> Config:
    config = Config()
    config.limits.helper_idle_sec = seconds
    return config


@contextmanager
def two_libraries(root: Path, data: Path) -> Generator[tuple[Library, Library]]:
    with library_on(root, data) as one, library_on(root, data) as other:
        yield one, other


def server_on(root: Path, data: Path) -> Client:
    client = Client("--root", str(root), "--mode", "classic", env={"LLMC_DATA_DIR": str(data)})
    client.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
    return client


def found_by(client: Client, query: str) -> tuple[list[str], str]:
    reply = client.call("rag_search", query=query).meta
    return [hit["src"].partition("#")[0] for hit in reply["snippets"]], reply["freshness"]


def asked_of(library: Library, query: str) -> tuple[list[str], str]:
    answer = library.ask(query)
    return [os.fsdecode(hit.path) for hit in answer.hits], answer.freshness


def first_fresh(ask: Callable[[], tuple[list[str], str]]) -> str:
    """The best path of the first answer that calls itself fresh; on a busy machine one may say that it is not."""
    answers: list[tuple[list[str], str]] = []

    def is_fresh() -> bool:
        answers.append(ask())
        return answers[-1][1] in ("fresh", "updated 1 file")

    assert eventually(is_fresh), answers
    return "".join(answers[-1][0][:1])


# --- one process ---------------------------------------------------------------------------------------------------


def test_two_servers_have_one_indexing_process(root: Path, data: Path) -> None:
    with two_libraries(root, data) as (one, other):
        assert one.found("paint zebra")[0] == other.found("paint zebra")[0] == "zoo/zebra.py"
        assert len(keepers(root)) == 1


def test_many_servers_that_ask_at_once_start_one(root: Path, data: Path) -> None:
    found: list[str] = []

    def ask(library: Library) -> None:
        found.append(library.found("paint zebra")[0])

    with ExitStack() as stack:
        libraries = [stack.enter_context(library_on(root, data)) for _ in range(5)]
        threads = [threading.Thread(target=ask, args=(library,)) for library in libraries]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == ["zoo/zebra.py"] * len(libraries)
        assert len(keepers(root)) == 1
    assert eventually(lambda: keepers(root) == [])


def test_every_server_sees_each_change_that_was_made_before_it_asked(root: Path, data: Path) -> None:
    with two_libraries(root, data) as (one, other):
        for library in (one, other):
            library.ask("zebra")
        for number in range(10):
            word = f"wombat{'abcdefghij'[number]}"
            (root / f"new_{number}.py").write_text(f"def {word}_digs():\n    return {number}\n")
            for library in (one, other):
                assert first_fresh(lambda library=library, word=word: asked_of(library, f"{word} digs")) == (
                    f"new_{number}.py"
                )


def test_servers_with_other_rules_do_not_share(root: Path, data: Path) -> None:
    strict = Config()
    strict.rag.max_file_bytes = 10
    with library_on(root, data) as one, library_on(root, data, strict) as other:
        one.ask("zebra")
        other.ask("zebra")
        assert len(keepers(root)) == 2


# --- hand-over -----------------------------------------------------------------------------------------------------


def test_another_server_takes_over_when_the_one_that_had_the_process_ends(root: Path, data: Path) -> None:
    with library_on(root, data) as other:
        with library_on(root, data) as one:
            one.ask("zebra")
            other.ask("zebra")
            (first,) = keepers(root)
        (root / "emu.py").write_text("def run_like_an_emu(): ...\n")
        assert other.found("run like an emu")[:1] == ["emu.py"]
        (second,) = keepers(root)
        assert first != second


def test_a_server_goes_on_with_fresh_answers_when_the_one_that_had_the_process_is_killed(
    root: Path, data: Path
) -> None:
    with server_on(root, data) as victim, server_on(root, data) as other:
        assert found_by(victim, "paint zebra")[0][:1] == ["zoo/zebra.py"]
        assert found_by(other, "paint zebra")[0][:1] == ["zoo/zebra.py"]
        (first,) = keepers(root)
        victim.process.kill()
        exit_code(victim.process)
        (root / "emu.py").write_text("def run_like_an_emu(): ...\n")
        assert first_fresh(lambda: found_by(other, "run like an emu")) == "emu.py"
        assert eventually(lambda: len(keepers(root)) == 1)
        assert keepers(root) != [first]


def test_a_build_that_another_server_began_is_begun_again_when_that_one_is_killed(root: Path, data: Path) -> None:
    for number in range(500):
        (root / f"many_{number}.py").write_text(f"def number_{number}():\n    return {number}\n" * 10)
    with server_on(root, data) as victim, server_on(root, data) as other:
        victim.start_call("rag_search", {"query": "paint zebra"})
        assert eventually(lambda: len(keepers(root)) == 1)
        asked = other.start_call("rag_search", {"query": "paint zebra"})
        assert eventually(lambda: any(Path(data, "index").glob("*/b-*")))
        victim.process.kill()
        exit_code(victim.process)
        reply = Reply(other.wait(asked)["result"])
        assert reply.code in ("", "RESOURCE_BUSY")  # a busy machine may need longer than a call has
        assert eventually(lambda: not other.call("rag_search", query="paint zebra").is_error)


def test_a_build_goes_on_to_its_end_when_its_only_server_is_killed(root: Path, data: Path) -> None:
    for number in range(2_000):
        (root / f"many_{number}.py").write_text(f"def number_{number}():\n    return {number}\n")
    with server_on(root, data) as victim:
        victim.start_call("rag_search", {"query": "paint zebra"})
        assert eventually(lambda: any(Path(data, "index").glob("*/current")))
        victim.process.kill()
        exit_code(victim.process)
    assert eventually(lambda: keepers(root) == [])
    (build,) = Path(data, "index").glob("*/current")
    tables = IndexTables(str(build))
    assert (tables.complete, len(tables.all_paths())) == (True, 2_002)
    tables.close()


# --- idle ----------------------------------------------------------------------------------------------------------


def test_a_process_that_nobody_asks_ends_and_the_next_question_starts_another(root: Path, data: Path) -> None:
    with library_on(root, data, idle_after(1.0)) as library:
        for number in range(3):
            (root / f"new_{number}.py").write_text(f"def wombat_{number}(): ...\n")
            assert eventually(lambda name=f"new_{number}.py": name in library.found("wombat"))
            assert eventually(lambda: keepers(root) == [])


def kill(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_process_that_searches_and_is_killed_is_replaced(root: Path, data: Path) -> None:
    with library_on(root, data) as library:
        library.ask("zebra")
        (keeper,) = keepers(root)
        kill(*children_of(keeper))  # the one that searches, and the parser
        assert library.found("paint zebra")[0] == "zoo/zebra.py"
        assert keepers(root) == [keeper]


def test_a_question_that_meets_the_end_of_the_process_is_answered(root: Path, data: Path) -> None:
    with library_on(root, data) as library:
        library.ask("zebra")
        for _ in range(5):
            ending = threading.Thread(target=kill, args=keepers(root))
            ending.start()
            assert library.found("paint zebra")[0] == "zoo/zebra.py"
            ending.join()


def test_an_idle_server_keeps_no_index_open(root: Path, data: Path) -> None:
    with library_on(root, data, idle_after(NEVER)) as library:
        library.ask("zebra")
        assert open_files(data / "index")
        library.app.release_idle(0.0)
        assert eventually(lambda: open_files(data / "index") == [])
        assert library.found("paint zebra")[0] == "zoo/zebra.py"


def test_a_query_that_runs_while_the_idle_clock_fires_is_answered(root: Path, data: Path) -> None:
    with library_on(root, data, idle_after(NEVER)) as library:

        def release() -> None:
            library.app.release_idle(0.0)

        def question(view: GraphView) -> int:
            release()
            return len(view.files.files())

        for _ in range(5):
            found = library.rag.search(CodeQuery("paint zebra", path_glob="zoo/*"), library.caller(release))
            assert found.hits[0].path == b"zoo/zebra.py"
            ((files, _),) = library.rag.ask(question, library.caller(release))
            assert files == 2


def open_files(folder: Path) -> list[str]:
    """The regular files below a folder that this process has open."""
    found: list[str] = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue  # the one that listed them
        if target.startswith(f"{folder}/"):
            found.append(target)
    return found


# --- what can go wrong ---------------------------------------------------------------------------------------------


def test_an_index_whose_folder_is_deleted_is_noticed_and_built_anew(root: Path, data: Path) -> None:
    with two_libraries(root, data) as (one, other):
        for library in (one, other):
            library.ask("zebra")
        for _ in range(2):
            shutil.rmtree(data / "index")
            for library in (one, other):
                answer = library.ask("paint zebra")
                assert answer.hits[0].path == b"zoo/zebra.py"
            assert one.build.is_dir()
            assert len(keepers(root)) == 1


def test_an_index_whose_build_is_deleted_is_noticed_and_built_anew(root: Path, data: Path) -> None:
    with library_on(root, data) as library:
        library.ask("zebra")
        old = library.build
        shutil.rmtree(old)
        answer = library.ask("paint zebra")
        assert answer.hits[0].path == b"zoo/zebra.py"
        assert "rebuilt" in answer.freshness
        assert library.build.is_dir()


def test_nonsense_on_the_connection_ends_that_connection_only(root: Path, data: Path) -> None:
    with library_on(root, data) as library:
        library.ask("zebra")
        (first,) = keepers(root)
        folder = os.open(library.home, os.O_PATH)
        (name,) = [path.name for path in library.home.glob("keeper-*")]
        for sent in (b"no json\n", b'{"id": 1, "do": "explode"}\n', b"\xff" * 100 + b"\n"):
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(20.0)
                line.connect(f"/proc/self/fd/{folder}/{name}")
                line.sendall(sent)
                assert not [piece for piece in iter(lambda: read(line), b"") if b"explode" in piece]
        os.close(folder)
        assert library.found("paint zebra")[0] == "zoo/zebra.py"
        assert keepers(root) == [first]


def read(line: socket.socket) -> bytes:
    try:
        return line.recv(1 << 16)
    except ConnectionResetError:
        return b""


def test_another_user_can_not_talk_to_the_process(root: Path, data: Path) -> None:
    require(os.geteuid() == 0, "root")
    with library_on(root, data) as library:
        library.ask("zebra")
        (place,) = library.home.glob("keeper-*")
        for folder in (data, data / "index", library.home):  # even if the folders let others in
            folder.chmod(0o755)
        place.chmod(0o777)
        for above in data.resolve().parents:
            if str(above).startswith("/tmp/"):
                above.chmod(above.stat().st_mode | 0o055)
        assert answered_as(65_534, library.home, place.name) == b""
        assert answered_as(0, library.home, place.name) != b""


def answered_as(uid: int, folder: Path, name: str) -> bytes:
    """What a process of another user hears when it asks; it asks from a fork."""
    heard_read, heard_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.chdir(folder)
            line = socket.socket(socket.AF_UNIX)
            line.settimeout(20.0)
            line.connect(name)
            line.sendall(b'{"id": 1, "do": "ping"}\n')
            os.write(heard_write, line.recv(1 << 16))
        finally:
            os._exit(0)
    os.close(heard_write)
    os.waitpid(pid, 0)
    try:
        return os.read(heard_read, 1 << 16)
    finally:
        os.close(heard_read)


def test_a_server_that_is_stopped_loses_the_process_to_the_next_one(root: Path, data: Path) -> None:
    environment = {"LLMC_DATA_DIR": str(data), "LLMC_MCP_LIMITS_LEASE_TTL_SEC": "1"}
    with Client("--root", str(root), "--mode", "classic", env=environment) as stopped:
        stopped.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
        found_by(stopped, "paint zebra")
        (first,) = keepers(root)
        os.kill(stopped.process.pid, signal.SIGSTOP)
        os.kill(first, signal.SIGKILL)  # nobody is there to notice it
        try:
            with Client("--root", str(root), "--mode", "classic", env=environment) as other:
                other.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
                assert found_by(other, "paint zebra")[0][:1] == ["zoo/zebra.py"]
        finally:
            os.kill(stopped.process.pid, signal.SIGCONT)


def test_a_server_that_searches_has_no_search_engine_in_its_own_memory(root: Path, data: Path) -> None:
    with server_on(root, data) as server:
        assert found_by(server, "paint zebra")[0][:1] == ["zoo/zebra.py"]
        assert not server.call("rag_where_used", symbol="paint_zebra").is_error
        mapped = Path(f"/proc/{server.process.pid}/maps").read_text()
        assert "msgspec" in mapped
        assert not any(engine in mapped for engine in ("tantivy", "numpy", "openblas", "tree_sitter"))


def test_the_servers_that_share_a_process_go_on_when_it_is_killed(root: Path, data: Path) -> None:
    with two_libraries(root, data) as (one, other):
        for library in (one, other):
            library.ask("zebra")
        for number, first in enumerate((other, one)):
            (killed,) = keepers(root)
            kill(killed)
            (root / f"emu_{number}.py").write_text(f"def run_like_emu_{number}(): ...\n")
            for library in (first, one, other):
                asked = f"run like emu {number}"
                assert first_fresh(lambda library=library, asked=asked: asked_of(library, asked)).startswith("emu_")
            assert eventually(lambda killed=killed: len(keepers(root)) == 1 and keepers(root) != [killed])


def test_a_search_has_the_priority_of_the_server_and_a_build_a_lower_one(root: Path, data: Path) -> None:
    with library_on(root, data) as library:
        library.ask("zebra")
        (keeper,) = keepers(root)
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        lower = min(nice + 5, 19)
        assert os.getpriority(os.PRIO_PROCESS, keeper) == lower
        assert nice in {os.getpriority(os.PRIO_PROCESS, child) for child in children_of(keeper)}
