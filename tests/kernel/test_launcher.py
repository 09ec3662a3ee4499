"""Children: started clean, reported truthfully, confined, and never left behind."""

import errno
import marshal
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from llmc_mcp.kernel import syscalls
from llmc_mcp.kernel.child import Child
from llmc_mcp.kernel.launcher import Launcher, RunningChild
from llmc_mcp.kernel.launcher_process import ChildPlan, next_report, next_signal

from ..support.client import PATIENCE
from ..support.forked import templates
from ..support.hung_mount import NAME, can_mount, hanging_mount
from ..support.processes import children_of, processes_below
from ..support.talk import eventually
from ..support.workspace import SECRET, Workspace, require

SH = b"/bin/sh"
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


def run(
    launcher: Launcher,
    *argv: bytes,
    cwd: Path = Path("/"),
    env: dict[bytes, bytes] | None = None,
    rules: int | None = None,
) -> tuple[int, bytes, bytes]:
    """A child's exit code, output and errors."""
    folder = os.open(cwd, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with Child(launcher, list(argv), cwd=folder, env=env or {}, ruleset=rules) as child:
            output = b"".join(child.output(lambda: None))
        assert child.exit_code is not None
        return child.exit_code, output, child.stderr
    finally:
        os.close(folder)


def start(launcher: Launcher, *argv: bytes, plan: ChildPlan | None = None) -> RunningChild:
    """A child that nobody listens to."""
    null = os.open(os.devnull, os.O_RDWR)
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        return launcher.start(list(argv), {}, [root, null, null, null], plan or {})
    finally:
        os.close(null)
        os.close(root)


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def gone(watch: int) -> bool:
    """Whether the process behind a pidfd ends."""
    try:
        return bool(select.select([watch], [], [], PATIENCE)[0])
    finally:
        os.close(watch)


# --- what a child gets -----------------------------------------------------------------------------------


_earlier: set[int] = set()


@pytest.fixture(autouse=True)
def children_of_other_tests() -> None:
    """Children that were there before: what other tests' servers are forked from, and what other tests left."""
    _earlier.clear()
    _earlier.update(children_of(os.getpid()))


def own_children() -> list[int]:
    """The children that this process has got during the test."""
    return [pid for pid in children_of(os.getpid()) if pid not in _earlier and pid not in templates()]


def test_a_child_has_three_descriptors_and_no_more(launcher: Launcher) -> None:
    leaky = os.open("/etc", os.O_RDONLY)
    os.set_inheritable(leaky, True)
    try:
        code, output, _ = run(launcher, b"/bin/ls", b"/proc/self/fd")
    finally:
        os.close(leaky)
    assert code == 0
    assert output.split() == [b"0", b"1", b"2", b"3"]  # the fourth is ls looking at the folder


def test_a_command_has_the_descriptors_it_was_given_whether_it_was_forked_ahead_or_not(launcher: Launcher) -> None:
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    given = [os.memfd_create("given") for _ in range(16)]  # more than a process that waits has of its own
    names = " ".join(f"/proc/self/fd/{number}" for number in range(3, 3 + len(given))).encode()
    try:
        for number, fd in enumerate(given):
            os.write(fd, b"%d " % number)
        for _ in range(3):
            plan = ChildPlan(supervised=True, keep=[*range(4, 4 + len(given))])
            argv = [SH, b"-c", b"cat %s; exec ls -v /proc/self/fd" % names]
            with Child(launcher, argv, cwd=folder, env={}, plan=plan, more_fds=tuple(given)) as child:
                output = b"".join(child.output(lambda: None))
            seen = [int(word) for word in output.split()]
            assert seen[: len(given)] == [*range(len(given))]
            assert seen[len(given) :] == [*range(3 + len(given) + 1)], "the last is ls looking at the folder"
    finally:
        for fd in (folder, *given):
            os.close(fd)


def test_a_child_has_the_environment_it_was_given_and_no_more(launcher: Launcher) -> None:
    assert run(launcher, b"/usr/bin/env")[1] == b""
    assert run(launcher, b"/usr/bin/env", env={b"A": b"1 \xff"})[1] == b"A=1 \xff\n"


def test_a_child_works_where_it_was_told_and_reads_nothing(launcher: Launcher, tmp_path: Path) -> None:
    code, output, _ = run(launcher, SH, b"-c", b"pwd; cat; echo end", cwd=tmp_path)
    assert (code, output) == (0, os.fsencode(tmp_path) + b"\nend\n")


def test_arguments_are_bytes_and_no_shell_reads_them(launcher: Launcher) -> None:
    odd = [b"a b", b"", b"$HOME", b"\xff\xfe", b"*"]
    assert run(launcher, b"/usr/bin/printf", b"%s|", *odd)[1] == b"|".join(odd) + b"|"


def test_a_child_is_its_own_session_and_obeys_signals_again(launcher: Launcher) -> None:
    code, output, _ = run(launcher, SH, b"-c", b"cut -d' ' -f1,6 /proc/$$/stat; grep SigIgn /proc/self/status")
    numbers, ignored = output.splitlines()
    pid, session = numbers.split()
    assert (code, pid) == (0, session)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ):
        assert not int(ignored.split()[1], 16) >> (number - 1) & 1, number


# --- what is reported ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_codes_are_reported(launcher: Launcher, code: int) -> None:
    assert run(launcher, SH, b"-c", b"exit %d" % code)[0] == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_deaths_by_signal_are_reported(launcher: Launcher, number: signal.Signals) -> None:
    assert run(launcher, SH, b"-c", b"kill -%d $$" % number)[0] == -number


def test_output_and_errors_come_apart_and_whole(launcher: Launcher) -> None:
    script = b"i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done; echo oops >&2"
    code, output, errors = run(launcher, SH, b"-c", script)
    assert (code, output, errors) == (0, b"0123456789\n" * 20_000, b"oops\n")


@pytest.mark.parametrize(
    ("argv", "number"),
    [
        ([b"/no/such/binary"], errno.ENOENT),
        ([b"/etc/passwd"], errno.EACCES),
        ([b"/bin/true", b"x" * 200_000], errno.E2BIG),
        ([b"/bin/true", b"x" * (5 << 20)], errno.E2BIG),
    ],
)
def test_what_cannot_start_says_why(launcher: Launcher, argv: list[bytes], number: int) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its errno is checked below
        start(launcher, *argv)
    assert caught.value.errno == number
    assert run(launcher, b"/bin/true")[0] == 0


def test_a_signal_reaches_the_whole_family(launcher: Launcher, tmp_path: Path) -> None:
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    script = b"sleep 1000 & (trap '' TERM; sleep 1000) & echo $! > ready; wait"
    folder = os.open(tmp_path, os.O_RDONLY)
    with Child(launcher, [SH, b"-c", script], cwd=folder, env={}) as child:
        os.close(folder)
        stubborn = int(fifo.read_text())
        family = [stubborn, *children_of(parent_of(stubborn))]
        watches = [os.pidfd_open(pid) for pid in dict.fromkeys(family)]
    assert child.exit_code == -signal.SIGKILL
    assert all(gone(watch) for watch in watches)


# --- nothing stays -----------------------------------------------------------------------------------------


def test_a_thousand_children_leave_neither_zombies_nor_descriptors(launcher: Launcher) -> None:
    assert run(launcher, b"/bin/true")[0] == 0
    (process,) = own_children()

    def descriptors() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{process}/fd"))

    before = descriptors()
    for _ in range(1_000):
        child = start(launcher, b"/bin/true")
        assert launcher.wait(child) == 0
    assert children_of(process) == []
    assert descriptors() == before
    assert own_children() == [process]


def test_many_children_at_once_are_told_apart(launcher: Launcher) -> None:
    started = {start(launcher, SH, b"-c", b"exit %d" % code): code for code in range(100)}
    for child, code in started.items():
        assert launcher.wait(child) == code


def test_a_signal_to_a_command_that_is_just_ending_costs_neither_its_exit_code_nor_the_launcher() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            ours.send(b"\x09")  # a signal that the supervisor never read …
            theirs.send((7).to_bytes(4, "little"))  # … because it had told its outcome and left
        assert next_report(ours) == (7).to_bytes(4, "little")
        assert next_report(ours) == b""


def test_closing_ends_every_child_and_the_launcher() -> None:
    launcher = Launcher()
    watches = [os.pidfd_open(start(launcher, b"/bin/sleep", b"1000").pid) for _ in range(3)]
    (process,) = own_children()
    watches.append(os.pidfd_open(process))
    launcher.close()
    assert all(gone(watch) for watch in watches)
    assert own_children() == []
    launcher.close()


OWNER = """
import os, sys
from llmc_mcp.kernel.launcher import Launcher
launcher = Launcher()
null, root = os.open(os.devnull, os.O_RDWR), os.open("/", os.O_RDONLY)
script = b"setsid sleep 1000 & (sleep 1000 &) ; sleep 1000"
for _ in range(3):
    launcher.start([b"/bin/sh", b"-c", script], {}, [root, null, null, null], {})
print(launcher.start([b"/bin/sleep", b"1000"], {}, [root, null, null, null], {}).pid, flush=True)
sys.stdin.read()
"""


def test_killing_the_owner_leaves_nobody_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        try:
            assert owner.stdout
            last = int(owner.stdout.readline())
            launcher = parent_of(last)
            assert parent_of(launcher) == owner.pid
            while len(family := processes_below(launcher)) < 3 * 4 + 1:  # each shell with its three, and the last one
                assert owner.poll() is None
            watches = [os.pidfd_open(launcher)]
            for pid in family:
                with suppress(ProcessLookupError):  # a shell that forked and left since
                    watches.append(os.pidfd_open(pid))
        finally:
            owner.kill()
        assert all(gone(watch) for watch in watches)


@pytest.mark.parametrize("supervised", [False, True])
def test_a_launcher_whose_server_is_killed_before_it_read_its_news_ends_quietly(supervised: bool) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    serving = f"from llmc_mcp.kernel.launcher_process import serve; serve({theirs.fileno()})"
    command = [sys.executable, "-c", serving]
    with subprocess.Popen(command, stderr=subprocess.PIPE, pass_fds=[theirs.fileno()]) as launcher:
        theirs.close()
        null, root = os.open(os.devnull, os.O_RDWR), os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        argv, plan = [SH, b"-c", b"(setsid sleep 1000 &) ; exec sleep 1000"], {"supervised": supervised}
        socket.send_fds(ours, [marshal.dumps(("start", 1, argv, {}, plan))], [root, null, null, null])
        assert select.select([ours], [], [], PATIENCE)[0], "the launcher has no news"
        while len(sleepers := [pid for pid in processes_below(launcher.pid) if name_of(pid) == "sleep"]) < 2:
            assert launcher.poll() is None
        watches = [os.pidfd_open(pid) for pid in sleepers]
        for fd in (null, root):
            os.close(fd)
        ours.close()  # with the news unread, as the kernel does it for a process that is killed
        assert launcher.stderr
        assert launcher.stderr.read() == b""
        assert launcher.wait(PATIENCE) == 0
        assert all(gone(watch) for watch in watches)


def test_a_supervisor_whose_launcher_is_gone_takes_its_command_along() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            ours.send(b"\0")  # a report that the launcher never read
        assert next_signal(ours) == (signal.SIGKILL, False)


def waiting_processes(launcher_pid: int) -> list[int]:
    """Those that wait to become a command, each below a supervisor that has let go of their channel."""
    supervisors = [pid for pid in children_of(launcher_pid) if len(sockets_of(pid)) == 1]
    return [pid for supervisor in supervisors for pid in children_of(supervisor)]


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def sockets_of(pid: int) -> list[str]:
    found: list[str] = []
    with suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found += [link] if (link := os.readlink(fd)).startswith("socket:") else []
    return found


def test_a_process_that_was_killed_while_it_waited_to_become_a_command_costs_none(launcher: Launcher) -> None:
    plan = ChildPlan(supervised=True)
    assert launcher.wait(start(launcher, SH, b"-c", b"exit 3", plan=plan), PATIENCE) == 3
    (process,) = own_children()
    assert eventually(lambda: bool(waiting_processes(process)))
    for pid in waiting_processes(process):
        watch = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        assert gone(watch)
    for code in (4, 5):
        assert launcher.wait(start(launcher, SH, b"-c", b"exit %d" % code, plan=plan), PATIENCE) == code


def test_a_launcher_that_was_killed_is_replaced(launcher: Launcher) -> None:
    for _ in range(3):
        child = start(launcher, b"/bin/sleep", b"1000")
        (process,) = own_children()
        watches = [os.pidfd_open(process), os.pidfd_open(child.pid)]
        os.kill(process, signal.SIGKILL)
        assert all(gone(watch) for watch in watches)
        assert run(launcher, SH, b"-c", b"echo again")[1] == b"again\n"
        assert launcher.wait(child) == -signal.SIGKILL
        assert process not in own_children()


def test_a_start_that_is_first_to_notice_a_dead_launcher_makes_a_new_one(launcher: Launcher) -> None:
    assert run(launcher, b"/bin/true")[0] == 0
    (process,) = own_children()
    watch = os.pidfd_open(process)
    news: threading.Condition = vars(launcher)["_news"]
    with news:  # while it is held the listener can't tell anybody that the launcher died
        os.kill(process, signal.SIGKILL)
        assert gone(watch)
        child = start(launcher, SH, b"-c", b"exit 7")
    assert launcher.wait(child) == 7


# --- scarcity, and a file system that does not answer -----------------------------------------------------


def test_a_launcher_that_nobody_could_listen_to_is_tried_anew(launcher: Launcher) -> None:
    threading.stack_size(1 << 46)  # no thread can have that much, so none starts
    try:
        with pytest.raises(BlockingIOError):
            start(launcher, b"/bin/true")
    finally:
        threading.stack_size(0)
    assert launcher.wait(start(launcher, SH, b"-c", b"exit 7"), PATIENCE) == 7
    assert len(own_children()) == 1


def test_a_launcher_short_of_descriptors_fails_one_start_and_goes_on(launcher: Launcher) -> None:
    assert launcher.wait(start(launcher, b"/bin/true"), PATIENCE) == 0
    (process,) = own_children()
    limits = resource.prlimit(process, resource.RLIMIT_NOFILE)
    for room in range(10):  # whichever descriptor is the first that it can't have
        used = len(os.listdir(f"/proc/{process}/fd"))
        resource.prlimit(process, resource.RLIMIT_NOFILE, (used + room, limits[1]))
        for plan in (ChildPlan(), ChildPlan(supervised=True)):
            with suppress(OSError):
                child = start(launcher, b"/bin/true", plan=plan)
                assert launcher.wait(child, PATIENCE) == 0
    resource.prlimit(process, resource.RLIMIT_NOFILE, limits)
    assert launcher.wait(start(launcher, SH, b"-c", b"exit 7"), PATIENCE) == 7
    with suppress(OSError):  # the supervisor that was forked ahead has inherited the limit
        launcher.wait(start(launcher, b"/bin/true", plan={"supervised": True}), PATIENCE)
    assert launcher.wait(start(launcher, SH, b"-c", b"exit 8", plan={"supervised": True}), PATIENCE) == 8
    assert own_children() == [process]


@pytest.mark.parametrize("plan", [ChildPlan(), ChildPlan(supervised=True)], ids=["alone", "supervised"])
def test_a_program_that_the_file_system_never_hands_out_keeps_no_other_from_starting(
    launcher: Launcher, tmp_path: Path, plan: ChildPlan
) -> None:
    require(can_mount(), "root that may make mounts")
    failures: list[OSError] = []

    def start_stuck() -> None:
        try:
            start(launcher, os.fsencode(mount.folder) + b"/" + NAME, plan=plan)
        except OSError as exc:
            failures.append(exc)

    with hanging_mount(tmp_path / "hung") as mount:
        assert launcher.wait(start(launcher, b"/bin/true", plan=plan), PATIENCE) == 0
        mount.hang()
        stuck = threading.Thread(target=start_stuck)
        stuck.start()
        while not any(is_stuck(pid) for pid in processes_below(os.getpid())):
            assert stuck.is_alive()
            time.sleep(0.01)
        assert launcher.wait(start(launcher, SH, b"-c", b"exit 7", plan=plan), PATIENCE) == 7
        mount.end()
        stuck.join(PATIENCE)
    assert len(failures) == 1


@pytest.mark.parametrize("plan", [ChildPlan(), ChildPlan(supervised=True)], ids=["alone", "supervised"])
def test_nobody_waits_for_ever_for_a_child_that_the_kernel_cannot_kill(
    launcher: Launcher, tmp_path: Path, plan: ChildPlan
) -> None:
    require(can_mount(), "root that may make mounts")
    folder = os.open("/", os.O_RDONLY)
    with hanging_mount(tmp_path / "hung") as mount:
        mount.hang()
        path = os.fsencode(mount.folder) + b"/" + NAME
        with Child(launcher, [b"/bin/cat", path], cwd=folder, env={}, plan=plan) as child:
            os.close(folder)
            while not any(is_stuck(pid) for pid in processes_below(os.getpid())):
                assert child.exit_code is None
                time.sleep(0.01)
        assert child.exit_code == -signal.SIGKILL
        assert launcher.wait(start(launcher, SH, b"-c", b"exit 7", plan=plan), PATIENCE) == 7
        launcher.close()


def is_stuck(pid: int) -> bool:
    """Whether a process waits for the answer of a FUSE file system."""
    try:
        return Path(f"/proc/{pid}/wchan").read_text() == "request_wait_answer"
    except OSError:
        return False


# --- confinement -------------------------------------------------------------------------------------------


@pytest.fixture
def read_only(workspace: Workspace) -> Iterator[int]:
    """A rule set: read below the workspace's root, run what the system has."""
    require(syscalls.landlock_abi() > 0, "a kernel with Landlock")
    programs = ("/bin", "/usr/bin", *LIBRARIES)
    fds = {path: os.open(path, syscalls.O_PATH) for path in programs if os.path.exists(path)}
    root = os.open(workspace.root, syscalls.O_PATH)
    rights = syscalls.EXECUTABLE | syscalls.READ_ONLY
    rules = [(fd, rights, os.path.isdir(path)) for path, fd in fds.items()]
    ruleset = syscalls.landlock_ruleset([*rules, (root, syscalls.READ_ONLY, True)])
    for fd in (*fds.values(), root):
        os.close(fd)
    yield ruleset
    os.close(ruleset)


def test_a_confined_child_reads_what_it_may(launcher: Launcher, workspace: Workspace, read_only: int) -> None:
    file = workspace.file("sub/a.txt", "inside\n")
    assert run(launcher, b"/bin/cat", os.fsencode(file), rules=read_only)[:2] == (0, b"inside\n")


def test_a_confined_child_reads_nothing_else(launcher: Launcher, workspace: Workspace, read_only: int) -> None:
    (workspace.root / "link").symlink_to(workspace.outside / "secret.txt")
    for path in (workspace.outside / "secret.txt", workspace.root / "link", workspace.root / "../outside/secret.txt"):
        code, output, errors = run(launcher, b"/bin/cat", os.fsencode(path), rules=read_only)
        assert code != 0
        assert SECRET.encode() not in output
        assert b"Permission denied" in errors
    assert run(launcher, b"/bin/cat", os.fsencode(workspace.outside / "secret.txt"))[0] == 0


def test_a_confined_child_writes_nothing_anywhere(launcher: Launcher, workspace: Workspace, read_only: int) -> None:
    file = workspace.file("a.txt", "before\n")
    (workspace.root / "sub").mkdir()
    before = sorted(workspace.root.rglob("*"))
    for command in (
        b"echo after > a.txt",
        b"echo new > new.txt",
        b"rm -f a.txt; test ! -e a.txt",
        b"mkdir new",
        b"mv a.txt b.txt",
        b"ln -s a.txt link",
        b"rmdir sub",
    ):
        code, _, errors = run(launcher, SH, b"-c", command, cwd=workspace.root, rules=read_only)
        assert code != 0, (command, errors)
    assert file.read_text() == "before\n"
    assert sorted(workspace.root.rglob("*")) == before


def test_confinement_is_inherited_and_only_the_child_has_it(
    launcher: Launcher, workspace: Workspace, read_only: int
) -> None:
    secret = os.fsencode(workspace.outside / "secret.txt")
    nested = b"sh -c 'sh -c \"cat " + secret + b"\"'"
    assert run(launcher, SH, b"-c", nested, rules=read_only, env={b"PATH": b"/bin:/usr/bin"})[0] != 0
    assert run(launcher, b"/bin/cat", secret)[0] == 0


def test_no_child_gains_privileges(launcher: Launcher) -> None:
    assert run(launcher, b"/bin/grep", b"NoNewPrivs", b"/proc/self/status")[1].split() == [b"NoNewPrivs:", b"1"]
