"""Commands end, all of them, and take no more than their share: attacks C01 to C08, C12 to C16 and C26."""

import os
import secrets
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from llmc_mcp.files.filesystem import Filesystem
from llmc_mcp.kernel.child import Child
from llmc_mcp.kernel.launcher import Launcher

from ..support.client import Client
from ..support.processes import children_of
from ..support.talk import eventually
from ..support.workspace import hand_over, run_as_at
from .arena import LEVELS, USERS, Arena, pids_with, wait_until_gone
from .attack import status_kb

# Waits for ever; a token may follow it.
PAUSE = "/usr/bin/python3 -c 'import signal; signal.pause()'"
COMBINATIONS = [(level, who) for level in LEVELS for who in USERS]

# A tree that does not want to end: a daemon that left its session and its parent, and ignores polite signals.
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
ready, tell = os.pipe()
for generation in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        os.write(tell, b"x")
        break
else:
    os.read(ready, 1), os.read(ready, 1), os.read(ready, 1)
    print("ready", flush=True)
if sys.argv[2] == "wait":
    signal.pause()
    signal.pause()
else:
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture(scope="module", params=COMBINATIONS, ids="-".join)
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    with Arena(*request.param) as made:
        yield made


def token() -> str:
    """A word that only the processes of one test have on their command line."""
    return f"llmc-{secrets.token_hex(8)}"


@pytest.mark.parametrize("how", ["wait", "stop"])
def test_c01_c07_c08_a_timeout_leaves_no_process(arena: Arena, how: str) -> None:
    mark = token()
    answer = arena.run(["python3", "-c", STUBBORN, mark, how], timeout=1)
    assert answer["error"] == "TIMEOUT"
    assert "ready" in answer["message"], answer
    assert pids_with(mark) == []


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("who", USERS)
def test_c02_no_process_survives_the_servers_sudden_death(level: str, who: str) -> None:
    with Arena(level, who) as arena:
        mark = token()
        (arena.root / "go").unlink(missing_ok=True)
        os.mkfifo(arena.root / "go")
        arena.hand_over()
        script = f"(echo > go; exec setsid {PAUSE} $0) & wait"
        arena.order(["bash", "-c", script, mark], timeout=60)
        (arena.root / "go").read_text()  # the grandchild is there
        pidfds = [os.pidfd_open(pid) for pid in pids_with(mark)]
        assert pidfds
        os.kill(arena.pid, signal.SIGKILL)
        assert wait_until_gone(pidfds)
        assert pids_with(mark) == []


class SupervisedChild(NamedTuple):
    """A supervised command that started a session of its own, and the processes around it."""

    child: Child
    output: Iterator[bytes]
    launcher: int
    pids: list[int]
    descendants: list[int]  # their pidfds


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[SupervisedChild]:
    mark = token()
    launcher = Launcher()
    cwd = os.open(tmp_path, os.O_RDONLY)
    try:
        argv = [b"/bin/sh", b"-c", f"setsid {PAUSE} {mark} & echo up; wait".encode()]
        with Child(launcher, argv, cwd=cwd, env={}, plan={"supervised": True}) as child:
            output = child.output(lambda: None)
            assert next(output) == b"up\n"
            assert eventually(lambda: bool(pids_with(mark)))  # the shell may be first to speak
            pids = pids_with(mark)
            pidfds = [os.pidfd_open(pid) for pid in pids]
            (launcher_pid,) = [pid for pid in children_of(os.getpid()) if _is_launcher(pid)]
            yield SupervisedChild(child, output, launcher_pid, pids, pidfds)
    finally:
        os.close(cwd)
        launcher.close()


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _is_launcher(pid: int) -> bool:
    return b"kernel.launcher" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_c02_no_process_survives_the_launchers_sudden_death(supervised: SupervisedChild) -> None:
    os.kill(supervised.launcher, signal.SIGKILL)
    assert wait_until_gone(supervised.descendants)


def test_c02_orphans_of_a_killed_supervisor_end_too(supervised: SupervisedChild) -> None:
    supervisor = supervised.pids[0]
    while (parent := _parent_of(supervisor)) != supervised.launcher:  # which has other children as well
        supervisor = parent
    os.kill(supervisor, signal.SIGKILL)
    assert list(supervised.output) == []
    assert supervised.child.exit_code == -signal.SIGKILL
    assert wait_until_gone(supervised.descendants)


def test_c03_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    launcher = Launcher()
    files = Filesystem([str(tmp_path)])
    os.mkfifo(tmp_path / "go")
    made: list[Child] = []

    def start() -> None:
        argv = [b"/bin/sh", b"-c", b"cat go; echo done"]
        made.append(Child(launcher, argv, cwd=files.roots[0].fd, env={b"PATH": b"/bin"}))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    with made[0] as child:
        (tmp_path / "go").write_text("go\n")
        assert b"".join(child.output(lambda: None)) == b"go\ndone\n"
        assert child.exit_code == 0
    launcher.close()


def test_c04_a_flood_is_drained_in_bounded_memory(arena: Arena) -> None:
    arena.run(["dd", "if=/dev/zero", "bs=1M", "count=4", "status=none"])
    before = status_kb(arena.pid, "VmRSS")
    answer = arena.run(["dd", "if=/dev/zero", "bs=1M", "count=256", "status=none"], timeout=60)
    assert answer["exit_code"] == 0
    assert status_kb(arena.pid, "VmRSS") - before < 8_000
    assert len(answer["stdout"]) < 70_000
    assert answer["handle"]


def test_c05_what_is_not_text_becomes_text(arena: Arena) -> None:
    script = r"printf 'a\xff\xfe\0b\033[31mred\033]0;title\007\n'"
    answer = arena.run(["bash", "-c", script])
    assert answer["stdout"] == "a\ufffd\ufffd\0b\x1b[31mred\x1b]0;title\x07\n"  # the renderer makes controls visible


def test_c06_a_background_process_that_holds_the_output_does_not_hold_the_call(arena: Arena) -> None:
    mark = token()
    answer = arena.run(["bash", "-c", f"setsid {PAUSE} {mark} & echo done"], timeout=60)
    assert (answer["exit_code"], answer["stdout"]) == (0, "done\n")
    assert pids_with(mark) == []


@pytest.mark.parametrize("number", [1, 2, 9, 11, 15])
def test_an_exit_by_signal_is_reported_as_a_shell_does(arena: Arena, number: int) -> None:
    assert arena.run(["bash", "-c", f"kill -{number} $$"])["exit_code"] == 128 + number


BOMB = """
import os, sys
children = 0
hold, _ = os.pipe()
try:
    while children < 2000:
        if os.fork() == 0:
            os.read(hold, 1)
            os._exit(0)
        children += 1
except OSError as exc:
    print(children)
"""


@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("level", LEVELS)
def test_c12_a_fork_bomb_hits_a_limit_and_ends_with_its_command(level: str, who: str) -> None:
    with Arena(level, who, sandbox={"max_processes": 40}) as arena:
        mark = token()
        answer = arena.run(["python3", "-c", BOMB, mark], timeout=60)
        assert answer["exit_code"] == 0, answer
        # The limit counts all of a user's processes: what else of his ends meanwhile leaves room for some more.
        assert 5 < int(answer["stdout"]) < 200
        assert pids_with(mark) == []
        endless = f"bomb() {{ bomb | bomb & }}; bomb; exec {PAUSE} $0"
        assert arena.run(["bash", "-c", endless, mark], timeout=1)["error"] == "TIMEOUT"
        assert pids_with(mark) == []
        assert arena.run(["true"])["exit_code"] == 0


@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("level", LEVELS)
def test_c13_c14_memory_files_and_tmp_are_bounded(level: str, who: str) -> None:
    bounds = {"max_memory_mb": 256, "max_file_mb": 8, "max_tmp_mb": 16}
    with Arena(level, who, sandbox=bounds) as arena:
        eat = arena.run(["python3", "-c", "x = bytearray(1 << 30)"], timeout=60)
        assert "MemoryError" in eat["stderr"]
        assert arena.run(["cat", "/proc/self/oom_score_adj"]).get("stdout") in ("800\n", "")
        arena.run(["dd", "if=/dev/zero", "of=big", "bs=1M", "count=16", "status=none"])
        assert (arena.root / "big").stat().st_size == 8 << 20
        fill = 'for i in 1 2 3 4; do dd if=/dev/zero of="$TMPDIR/$i" bs=1M count=7 status=none; done'
        filled = arena.run(["bash", "-c", fill])
        if level == "workspace":  # Landlock has no private file system: only the size of each file is bounded there
            assert "No space left" in filled["stderr"]


def test_c15_many_commands_leave_nothing_behind(arena: Arena) -> None:
    def open_fds() -> int:
        return len(os.listdir(f"/proc/{arena.pid}/fd"))

    arena.run(["true"])
    before = open_fds()
    for _ in range(50):
        assert arena.run(["true"])["exit_code"] == 0
    assert open_fds() == before
    below = [len(children_of(pid)) for pid in children_of(arena.pid)]
    assert len(below) <= 2, "the launchers"
    assert sum(below) <= 2, "a supervisor that waits for the next command, and one that is just ending"


# --- C26: what killed servers leave ------------------------------------------------------------------


def _scratch_folders(place: Path) -> set[str]:
    return {path.name for path in place.glob("llmc-*")}


def _folder_made(server: Client, place: Path) -> str:
    """The folder that a server makes for its first command."""
    before = _scratch_folders(place)
    reply = server.call(
        "run_cmd", command=["bash", "-c", "mkdir -p $TMPDIR/a/b && ln -s / $TMPDIR/a/link && echo made"]
    )
    assert reply.body == "made\n", reply.text
    (made,) = _scratch_folders(place) - before
    return made


def test_c26_folders_of_killed_servers_are_removed_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    root, tmp, outside = tmp_path / "root", tmp_path / "tmp", tmp_path / "outside"
    for folder in (root, tmp, outside, tmp / "llmc-notes", tmp / "llmc-run-strange0"):
        folder.mkdir()
    (outside / "kept").write_text("x")
    (tmp / "llmc-run-linked00").symlink_to(outside)
    decoys = {"llmc-notes", "llmc-run-linked00"}
    if os.geteuid() == 0:
        os.chown(tmp / "llmc-run-strange0", 12345, 12345)
        decoys.add("llmc-run-strange0")
    settings = ["--root", str(root), "--set", "sandbox.level=landlock"]
    if user := run_as_at("landlock"):
        settings += ["--set", f"sandbox.run_as={user}"]
        hand_over(root)
        tmp.chmod(0o755)
    env = {"TMPDIR": str(tmp), "LLMC_DATA_DIR": str(tmp_path / "data")}
    with Client(*settings, env=env) as living, Client(*settings, env=env) as killed:
        kept, left = _folder_made(living, tmp), _folder_made(killed, tmp)
        os.kill(killed.process.pid, signal.SIGKILL)
        killed.process.wait()
        assert left in _scratch_folders(tmp)
        with Client(*settings, env=env) as next_one:
            while left in _scratch_folders(tmp):
                next_one.call("run_cmd", command="ls")
            assert {kept, *decoys} <= _scratch_folders(tmp)
        assert living.call("run_cmd", command=["bash", "-c", "ls -d $TMPDIR/a/b"]).body.endswith("/a/b\n")
    assert _scratch_folders(tmp) == decoys
    assert (outside / "kept").read_text() == "x"
