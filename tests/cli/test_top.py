"""`llmc top` in a real terminal: what it shows at two sizes, without colour, and what its keys do."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmc_mcp import __version__
from llmc_mcp.gate.usage import Usage
from llmc_mcp.permissions.approvals import Approvals, AskedCall
from llmc_mcp.session import Session
from llmc_mcp.store.schema import insert_into
from llmc_mcp.store.sqlite import SqliteStore

from ..support.client import Client
from ..support.talk import eventually
from ..support.workspace import Workspace, require

GOLDEN = Path(__file__).parent / "golden"
AT = 1_767_348_000.0  # long ago, so that the date is shown: it must not depend on the hour of the test


class Screen:
    """`llmc top` in a tmux of its own."""

    def __init__(self, folder: Path, data: Path, columns: int, rows: int, **env: str) -> None:
        self._socket = str(folder / "tmux")
        settings = {"LLMC_DATA_DIR": str(data), "TZ": "UTC", "TERM": "tmux-256color", **env}
        words = [f"{name}={value}" for name, value in settings.items()]
        program = "from llmc_mcp.cli.main import main; main()"
        start = ["env", "-u", "COLUMNS", "-u", "LINES", *words, sys.executable, "-c", program, "top"]
        size = ["-x", str(columns), "-y", str(rows)]
        no_status = ["start-server", ";", "set-option", "-g", "status", "off", ";"]
        self._tmux("-f", "/dev/null", *no_status, "new-session", "-d", *size, "-s", "top", *start)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-S", self._socket, *words], check=False, capture_output=True, text=True)
        return done.stdout

    def shows(self, *, escapes: bool = False) -> str:
        """What is on the screen."""
        return self._tmux("capture-pane", "-p", "-t", "top", *(["-e"] if escapes else []))

    def wait_for(self, wanted: Callable[[str], bool]) -> str:
        """What is on the screen once it is as wanted."""
        assert eventually(lambda: wanted(self.shows())), self.shows()
        return self.shows()

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", "-t", "top", *keys)

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A store with calls of two sessions."""
    require(shutil.which("tmux") is not None, "tmux")
    pytest.importorskip("textual")
    folder = tmp_path / "data"
    store = SqliteStore(str(folder))
    rows = [
        Usage(
            AT + number,
            "mcp",
            tool,
            status,
            12.5,
            args,
            100,
            2000,
            "uid:0",
            session,
            "claude",
            "opus",
            "",
            30,
            500,
            1200,
            "",
            '["/srv/shop"]',
            "workspace",
        )
        for number, (tool, status, args, session) in enumerate(
            [
                ("read_file", "ok", "path=shop/cart.py", "stdio-7-a1b2c3"),
                ("linux_fs_edit", "ok", "path=shop/cart.py", "stdio-7-a1b2c3"),
                ("run_cmd", "TIMEOUT", "command=pytest -q", "stdio-7-a1b2c3"),
                ("rag_search", "ok", "query=where are \u202esessions\u202c [red]kept[/red]", "http"),
            ]
        )
    ]
    with store.transaction() as connection:
        connection.executemany(insert_into("calls", Usage._fields), rows)
    store.close()
    return folder


@pytest.fixture
def screens(tmp_path: Path) -> Iterator[Callable[..., Screen]]:
    made: list[Screen] = []

    def start(data: Path, columns: int = 80, rows: int = 24, **env: str) -> Screen:
        made.append(Screen(tmp_path, data, columns, rows, **env))
        return made[-1]

    yield start
    for screen in made:
        screen.close()


def compare(screen: Screen, name: str, rows: int) -> None:
    """Wait for the golden screen; LLMC_GOLDEN=write makes it anew."""
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("LLMC_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        screen.wait_for(lambda text: "q quit" in text.splitlines()[rows - 1])
        file.write_text(normal(screen.shows()))
    eventually(lambda: normal(screen.shows()) == file.read_text())
    assert normal(screen.shows()) == file.read_text()


def normal(shown: str) -> str:
    """A screen without what differs from one release to the next."""
    return "\n".join(line.rstrip() for line in shown.replace(__version__, "VERSION").splitlines()).rstrip() + "\n"


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 50)])
def test_sessions_and_calls_are_shown_at_both_sizes(
    data: Path, screens: Callable[..., Screen], columns: int, rows: int
) -> None:
    screen = screens(data, columns, rows)
    screen.wait_for(lambda text: "stdio-7-a1b2c3" in text and "q quit" in text)
    compare(screen, f"sessions_{columns}x{rows}", rows)
    screen.press("2")
    screen.wait_for(lambda text: "rag_search" in text)
    compare(screen, f"calls_{columns}x{rows}", rows)
    screen.press("q")


def test_without_colour_no_colour_is_used(data: Path, screens: Callable[..., Screen]) -> None:
    screen = screens(data, NO_COLOR="1")
    screen.wait_for(lambda text: "stdio-7-a1b2c3" in text)
    codes = ";".join(re.findall(r"\x1b\[([\d;]*)m", screen.shows(escapes=True)))
    palette = {int(number) for number in re.findall(r"[34]8;5;(\d+)", codes)}
    assert palette <= {0, 7, 8, 15, 16, 59, 102, 145, 188, *range(231, 256)}, "not a grey"
    assert all(len(set(rgb)) == 1 for rgb in re.findall(r"[34]8;2;(\d+);(\d+);(\d+)", codes))
    plain = re.sub(r"[34]8;(?:5;\d+|2;\d+;\d+;\d+)", "", codes).split(";")
    assert not {str(number) for number in (*range(31, 37), *range(41, 47), *range(91, 97))} & set(plain)
    compare(screen, "sessions_80x24", 24)


def test_a_change_is_undone_and_redone_and_a_call_approved_by_key(
    data: Path, screens: Callable[..., Screen], workspace: Workspace
) -> None:
    file = workspace.file("a.txt", "before\n")
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(data)}) as client:
        written = client.call("linux_fs_write", path="a.txt", content="after\n", mode="rewrite")
        started = client.call("run_cmd", command="echo here; sleep 602", yield_after=0.5).meta["process"]
        store = SqliteStore(str(data))
        approvals = Approvals(lambda: store)
        who = Session(principal="uid:0", session_id="asking", agent_id="agent")
        call = AskedCall(who, "linux_fs_delete", {"path": "tree"}, "delete the folder tree", "risk", "/")
        approvals.request(call)
        screen = screens(data, 120, 30)
        screen.wait_for(lambda text: "q quit" in text)
        screen.press("3")
        screen.wait_for(lambda text: written.meta["undo_id"] in text)
        screen.press("u")
        screen.wait_for(lambda text: "undone: U_" in text)
        assert file.read_text() == "before\n"
        screen.press("Down", "u")
        screen.wait_for(lambda text: "redone: U_" in text)
        assert file.read_text() == "after\n"
        screen.press("4")
        screen.wait_for(lambda text: "delete the folder tree" in text)
        screen.press("a")
        screen.wait_for(lambda text: "approved: " in text)
        assert approvals.use(call) is True
        screen.press("5")
        screen.wait_for(lambda text: started in text)
        screen.press("s")
        screen.wait_for(lambda text: "stopping: " in text)
        assert eventually(lambda: started not in client.call("linux_proc_sessions").body)
        store.close()
