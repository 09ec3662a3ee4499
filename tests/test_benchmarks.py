"""The benchmark of tasks: each is really done, and nothing passes for an answer by itself."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from benchmarks.client import Client
from benchmarks.servers import HERE, Server, desktop_commander, llmc
from benchmarks.tasks import ours, theirs
from benchmarks.tasks.catalog import TASKS, Scene
from benchmarks.tasks.talk import Talk
from benchmarks.tasks.workspace import Workspace as Folder

from .support.workspace import require

pytestmark = pytest.mark.timeout(600)  # an index of all of Django takes a busy machine a minute


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(Folder(tmp_path_factory.mktemp("tasks") / "root"))
    yield scene
    scene.close()


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kept for all tests, and one for both modes: the index of the workspace is built once."""
    homes = tmp_path_factory.mktemp("homes")
    (homes / "llmc-hybrid").mkdir()
    (homes / "llmc-classic").symlink_to("llmc-hybrid")
    return homes


@pytest.fixture(scope="module")
def our_tokens(scene: Scene, homes: Path) -> Callable[[str], dict[str, int]]:
    """What our server spends on every task in a mode; they are done once."""

    @cache
    def spent(mode: str) -> dict[str, int]:
        with started(llmc(scene.workspace.root, homes, mode), scene) as client:
            ours.build_index(client)
            return tokens_of(client, ours.HYBRID if mode == "hybrid" else ours.CLASSIC, scene)

    return spent


@contextmanager
def started(server: Server, scene: Scene) -> Generator[Client]:
    with server.start(scene.workspace.root) as client:
        client.initialize()
        yield client


def tokens_of(client: Client, steps: dict[str, ours.Steps], scene: Scene) -> dict[str, int]:
    """Every task done once; what cannot be answered fails here."""
    spent: dict[str, int] = {}
    for task in TASKS:
        task.prepare(scene)
        talk = Talk(client)
        steps[task.name](talk, scene)
        assert task.holds(scene, "\n".join(talk.replies)), f"{task.name}: {talk.replies}"
        scene.close()
        spent[task.name] = talk.cost.answered
    return spent


def test_no_task_is_answered_by_an_empty_reply(scene: Scene) -> None:
    for task in TASKS:
        task.prepare(scene)
        if task.name != "kill a process":  # it would wait for an end that never comes
            assert not task.holds(scene, ""), task.name
        scene.close()


@pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # bpe_openai's own
@pytest.mark.parametrize("mode", ["hybrid", "classic"])
def test_every_task_is_done_by_our_server_in_both_modes(our_tokens: Callable[[str], dict[str, int]], mode: str) -> None:
    assert set(our_tokens(mode)) == {task.name for task in TASKS}


@pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # bpe_openai's own
def test_the_same_tasks_cost_at_least_40_percent_fewer_tokens_than_with_desktop_commander(
    scene: Scene, homes: Path, our_tokens: Callable[[str], dict[str, int]]
) -> None:
    require((HERE / "peers" / "node_modules").is_dir(), "the other servers (make peers)")
    spent = our_tokens("hybrid")
    with started(desktop_commander(scene.workspace.root, homes), scene) as client:
        their_tokens = tokens_of(client, theirs.DESKTOP_COMMANDER, scene)
    moderate = [task.name for task in TASKS if not task.flood]
    assert sum(spent[name] for name in moderate) <= 0.6 * sum(their_tokens[name] for name in moderate)
