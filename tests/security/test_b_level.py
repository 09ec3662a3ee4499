"""A call can't choose its own walls, and what no namespace keeps apart is refused: attacks B25 to B33."""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmc_mcp.commands.allowlist import Programs
from llmc_mcp.errors import CommandNotAllowed, FeatureUnavailable, PermissionDenied, ResourceBusy
from llmc_mcp.files.filesystem import Filesystem
from llmc_mcp.kernel.launcher import Launcher
from llmc_mcp.sandbox import levels, selftest
from llmc_mcp.sandbox.profile import SandboxSettings
from llmc_mcp.sandbox.sandbox import Sandbox

from ..support.talk import talk_on
from ..support.workspace import Workspace, hand_over, require, run_as_at
from .arena import LEVELS, USERS, Arena

COMBINATIONS = [(level, who) for level in LEVELS for who in USERS]
BWRAP = Path("/usr/bin/bwrap")
PATIENCE_S = 30.0


@pytest.fixture(scope="module", params=COMBINATIONS, ids="-".join)
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    with Arena(*request.param) as made:
        yield made


# --- B25: who says that the sandbox broke ----------------------------------------------------------------


@pytest.mark.parametrize("who", USERS)
def test_b25_a_command_that_talks_like_bubblewrap_is_not_believed(who: str) -> None:
    with Arena("auto", who) as arena:
        for lie in ("x", "execvp x: No such file or directory", "Can't chdir to /x: No such file or directory"):
            done = arena.run(["bash", "-c", f'echo "bwrap: {lie}" >&2; exit 1'])
            assert (done.get("exit_code"), done.get("stderr")) == (1, f"bwrap: {lie}\n"), done
            assert done["sandbox"] == "workspace"
        assert arena.run(["true"])["sandbox"] == "workspace"
        cache = arena.home / "data/sandbox.json"
        assert b"null" not in cache.read_bytes(), "nothing is to be tested anew"


def test_b25_a_program_on_a_terminal_that_talks_like_bubblewrap_is_not_believed(workspace: Workspace) -> None:
    require(BWRAP.exists(), "bubblewrap")
    with talk_on(workspace.root) as talk:
        started = talk.start(["bash", "-c", "echo 'bwrap: x'; exit 1"])
        assert (started.first_output, started.state) == ("bwrap: x\n", "exited")
        assert talk.gate.app.sandbox.level().name == "workspace"


FIND_STATUS = """
import glob
for path in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        if "status" in os.readlink(path):
            succeeded.append(path)
    except OSError:
        pass
"""


@pytest.mark.parametrize("who", USERS)
def test_b25_no_process_inside_holds_the_descriptor_on_which_bubblewrap_tells(who: str) -> None:
    with Arena("workspace", who) as arena:
        assert arena.python(FIND_STATUS) == []


@pytest.mark.parametrize("who", USERS)
def test_b25_what_bubblewrap_itself_could_not_execute_is_still_explained(who: str) -> None:
    with Arena("workspace", who) as arena:
        (arena.outside / "sh").symlink_to("/bin/sh")  # a listed program, by a name that does not exist inside
        script = arena.root / "script"
        script.write_text(f"#!{arena.outside}/sh\necho ran\n")
        script.chmod(0o755)
        arena.hand_over()
        done = arena.run(["./script"])
        assert done["error"] == "NOT_FOUND"
        assert "can't be executed (No such file or directory)" in done["message"]
        assert arena.run(["true"])["sandbox"] == "workspace"


# --- B26: never below what has held ----------------------------------------------------------------------

Make = Callable[[], Sandbox]


class Wrapper:
    """A bubblewrap that can be made to fail, first in the path."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.path = folder, folder / "bwrap"
        self.works()
        hand_over(folder)

    def works(self) -> None:
        self._put(BWRAP.read_bytes())

    def runs(self, line: str) -> None:
        self._put(f"#!/bin/sh\n{line}\n".encode())

    def _put(self, content: bytes) -> None:
        new = self.folder / "new"
        new.write_bytes(content)
        new.chmod(0o755)
        new.rename(self.path)


@pytest.fixture
def wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wrapper:
    require(BWRAP.exists(), "bubblewrap")
    made = Wrapper(tmp_path / "bin")
    monkeypatch.setattr(levels, "SYSTEM_PATH", (str(made.folder), *levels.SYSTEM_PATH))
    return made


@pytest.fixture
def make(workspace: Workspace, tmp_path: Path) -> Iterator[Make]:
    """Sandboxes of servers that share a data directory, at `auto`, where Landlock would hold too."""
    launcher = Launcher()
    made: list[Sandbox] = []
    hand_over(workspace.root)

    def build() -> Sandbox:
        roots = tuple(Filesystem([str(workspace.root)]).roots)
        made.append(Sandbox(launcher, SandboxSettings(run_as=run_as_at("landlock")), roots, str(tmp_path / "data")))
        return made[-1]

    yield build
    for one in made:
        one.close()
    launcher.close()


def test_b26_when_the_level_that_held_fails_nothing_weaker_is_taken(make: Make, wrapper: Wrapper) -> None:
    box = make()
    assert box.level().name == "workspace", box.report()
    wrapper.runs("echo 'bwrap: No permissions' >&2; exit 1")
    for _ in range(2):
        with pytest.raises(FeatureUnavailable, match="takes nothing weaker"):
            box.level()
    assert box.report().level == ""
    wrapper.works()
    assert box.level().name == "workspace"


def test_b26_nor_by_the_next_server_until_the_machine_is_started_again(make: Make, wrapper: Wrapper) -> None:
    assert make().level().name == "workspace"
    wrapper.runs("exit 1")
    with pytest.raises(FeatureUnavailable, match="takes nothing weaker"):
        make().level()


def test_b26_nor_after_it_broke_and_is_to_be_tested_anew(make: Make, wrapper: Wrapper) -> None:
    box = make()
    box.level()
    assert "not run" in box.broke("for a test").message
    wrapper.runs("exit 1")
    for sandbox in (box, make()):
        with pytest.raises(FeatureUnavailable, match="takes nothing weaker"):
            sandbox.level()


@pytest.mark.parametrize(
    "line",
    [
        "exec sleep 1000",
        "echo 'bwrap: Creating new namespace failed: Resource temporarily unavailable' >&2; exit 1",
        "kill -KILL $$",
    ],
)
def test_b26_a_test_that_could_not_be_finished_says_nothing_about_the_level(
    make: Make, wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(selftest, "_PATIENCE_S", 0.5)
    wrapper.runs(line)
    box = make()
    for _ in range(2):
        with pytest.raises(ResourceBusy, match="could not be tested now"):
            box.level()
    assert box.report().level == ""
    monkeypatch.setattr(selftest, "_PATIENCE_S", PATIENCE_S)
    wrapper.works()
    assert box.level().name == "workspace"


# --- B27: root, and programs that run as their owner -----------------------------------------------------


def test_b27_landlock_does_not_hold_root(workspace: Workspace, tmp_path: Path) -> None:
    require(os.getuid() == 0, "root")
    launcher = Launcher()
    box = Sandbox(
        launcher, SandboxSettings(level="landlock"), tuple(Filesystem([str(workspace.root)]).roots), str(tmp_path)
    )
    try:
        with pytest.raises(FeatureUnavailable, match=r"does not hold root.*mcp\.sandbox\.run_as"):
            box.level()
    finally:
        box.close()
        launcher.close()


SET_IDS = """
os.chdir(sys.argv[1])
x86 = os.uname().machine == "x86_64"
open("f", "w").close()
fd = os.open("f", os.O_RDWR)
for mode in (0o4755, 0o6755, 0o4000):
    attempt("chmod %o" % mode, lambda: os.chmod("f", mode))
    attempt("fchmod %o" % mode, lambda: os.fchmod(fd, mode))
    attempt("fchmodat %o" % mode, lambda: os.chmod("f", mode, dir_fd=os.open(".", 0)))
    attempt("fchmodat2 %o" % mode, lambda: call(452, -100, b"f", mode, 0))
    attempt("openat %o" % mode, lambda: os.open("new%o" % mode, os.O_CREAT | os.O_WRONLY, mode))
    attempt("tmpfile %o" % mode, lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, mode))
    attempt("mknodat %o" % mode, lambda: os.mknod("node%o" % mode, mode | 0o100000))
    if x86:
        attempt("old chmod %o" % mode, lambda: call(90, b"f", mode))
        attempt("old open %o" % mode, lambda: call(2, b"old%o" % mode, os.O_CREAT | os.O_WRONLY, mode))
        attempt("creat %o" % mode, lambda: call(85, b"creat%o" % mode, mode))
        attempt("mknod %o" % mode, lambda: call(133, b"oldnode%o" % mode, mode | 0o100000, 0))
how = struct.pack("QQQ", os.O_CREAT | os.O_RDWR, 0o6755, 0)  # a filter can't see this mode
made = call(437, -100, b"openat2", how, len(how))
os.write(made, b"#!/bin/sh")
"""


def test_b27_no_file_can_be_made_to_run_as_its_owner(arena: Arena) -> None:
    folder = arena.root / "set-ids"
    folder.mkdir()
    arena.hand_over()
    assert arena.python(SET_IDS, str(folder)) == []
    assert [path for path in folder.iterdir() if path.stat().st_mode & stat.S_ISUID] == []
    assert (folder / "openat2").stat().st_mode & (stat.S_ISUID | stat.S_ISGID) == 0, "writing takes them away"
    done = arena.run(["bash", "-c", "mkdir shared && chmod g+s shared"], cwd="set-ids")
    group_is_roots = arena.level == "workspace" and arena.who == "root"
    assert (done["exit_code"] != 0) == group_is_roots, done


ORDINARY = """
set -ex
mkdir d && echo '#!/bin/sh' > d/a && chmod 755 d/a && chmod 644 d/a && chmod u+x d/a
cp -p d/a b && cp -a d f && install -m 750 d/a c && install -d -m 700 g
tar -cpf t.tar d && mkdir e && tar -xpf t.tar -C e && tar --xattrs --acls -cf x.tar d
mkdir -m 1777 sticky && mknod fifo p && umask 077 && touch private && ls -la > /dev/null
git init -q r && cd r && git config user.email a@b && git config user.name a
cp -p ../d/a . && git add . && git commit -qm x && git checkout -q -b y && cd ..
python3 -c 'import shutil, tempfile; shutil.copytree("d", "h"); tempfile.mkstemp(dir=".")'
nice -n 5 true && python3 -c 'import os; os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1)'
if command -v make; then printf 'x: d/a\\n\\tcp -p d/a x\\n' > Makefile && make -j2 x; fi
if command -v dpkg-deb; then
  mkdir -p p/DEBIAN && printf 'Package: p\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b>\\nDescription: x\\n' \\
    > p/DEBIAN/control && chmod -R 755 p && dpkg-deb --root-owner-group -b p p.deb && dpkg-deb -x p.deb q
fi
"""


def test_b27_b31_ordinary_tools_keep_working(arena: Arena) -> None:
    folder = arena.root / "ordinary"
    folder.mkdir()
    arena.hand_over()
    done = arena.run(["bash", "-c", ORDINARY], cwd="ordinary")
    assert done["exit_code"] == 0, done["stderr"]


# --- B29: what a path to a program tells, and what waits there -------------------------------------------


class Swapped(Programs):
    """Somebody puts a pipe in the place of a program after it was found, and before it is read."""

    tool: Path

    def _look_up(self) -> set[tuple[int, int]]:
        self.tool.unlink()
        os.mkfifo(self.tool, 0o755)
        return super()._look_up()


def test_b29_a_pipe_in_a_programs_place_stops_nobody(tmp_path: Path) -> None:
    programs = Swapped(["true"], [], ("/usr/bin", "/bin"), (str(tmp_path), "/usr"))
    programs.tool = tmp_path / "tool"
    programs.tool.write_text("#!/nonexistent\n")
    programs.tool.chmod(0o755)
    refused: list[str] = []

    def look() -> None:
        for _ in range(2):  # a script that becomes a pipe, and then the pipe itself
            try:
                programs.find("./tool", str(tmp_path))
            except (CommandNotAllowed, PermissionDenied) as exc:
                refused.append(exc.code)

    looker = threading.Thread(target=look, daemon=True)
    looker.start()
    looker.join(PATIENCE_S)
    assert not looker.is_alive(), "it waits for somebody to write into a pipe"
    assert refused == ["COMMAND_NOT_ALLOWED", "PERMISSION_DENIED"]


def test_b29_a_path_outside_does_not_tell_whether_it_exists(arena: Arena) -> None:
    closed = arena.outside / "closed"
    closed.mkdir()
    for path, mode in ((arena.outside / "runs", 0o755), (closed / "runs", 0o755), (arena.outside / "plain", 0o644)):
        path.write_text("#!/bin/sh\n")
        path.chmod(mode)
    os.mkfifo(arena.outside / "pipe", 0o755)
    outside = [arena.outside / name for name in ("runs", "plain", "pipe", "missing", "closed", "closed/runs", "runs/x")]
    try:
        links: list[str] = []
        for number, path in enumerate(outside):
            (arena.root / f"link{number}").symlink_to(path)
            links.append(f"./link{number}")
        arena.hand_over()
        words = [*map(str, outside), *links, "../outside/runs", "../outside/missing", "/etc/shadow", "/etc/no-such"]
        answers = {str(arena.run([word])).replace(word, "WORD") for word in words}
        assert len(answers) == 1, answers
        assert "NOT_FOUND" in answers.pop()
    finally:
        for path in (*arena.root.glob("link*"), closed / "runs", arena.outside / "runs", arena.outside / "plain"):
            path.unlink()
        (arena.outside / "pipe").unlink()
        closed.rmdir()


# --- B31: what Landlock does not know --------------------------------------------------------------------

SHARED = """
outside, root, server = sys.argv[1], sys.argv[2], int(sys.argv[3])
numbers = {"x86_64": (29, 64, 68, 240, 253, 251), "aarch64": (194, 190, 186, 180, None, 30)}[os.uname().machine]
shmget, semget, msgget, mq_open, inotify_init, ioprio_set = numbers
def watch(path):
    fd = libc.inotify_init1(0)
    if fd < 0 or libc.inotify_add_watch(fd, path.encode(), 0xfff) < 0:
        raise OSError
attempt("watch outside", lambda: watch(outside))
attempt("watch inside", lambda: watch(root))
attempt("mark outside", lambda: call(300 if inotify_init else 262, 0, 0))
attempt("shared memory", lambda: call(shmget, 0, 4096, 0o1600))
attempt("semaphores", lambda: call(semget, 0, 1, 0o1600))
attempt("messages", lambda: call(msgget, 0, 0o1600))
attempt("message queue", lambda: call(mq_open, b"llmc-b31", os.O_CREAT | os.O_RDWR, 0o600, None))
attempt("list attributes", lambda: os.listxattr(outside + "/secret.txt"))
def absent(function):
    try:
        function()
    except OSError as exc:
        if exc.errno != errno.ENODATA:
            raise
attempt("read attribute", lambda: absent(lambda: os.getxattr(outside + "/secret.txt", "user.x")))
attempt("set attribute", lambda: os.setxattr(outside + "/secret.txt", "user.x", b"1"))
attempt("remove attribute", lambda: absent(lambda: os.removexattr(outside + "/secret.txt", "user.x")))
attempt("renice the server", lambda: os.setpriority(os.PRIO_PROCESS, server, 1))
attempt("renice the user", lambda: os.setpriority(os.PRIO_USER, 0, 1))
attempt("renice the user by number", lambda: os.setpriority(os.PRIO_USER, os.getuid(), 1))
attempt("disk priority of the user", lambda: call(ioprio_set, 3, 0, 3 << 13))
attempt("disk priority of the server", lambda: call(ioprio_set, 1, server, 3 << 13))
attempt("affinity of the server", lambda: os.sched_setaffinity(server, {0}))
attempt("scheduler of the server", lambda: os.sched_setscheduler(server, os.SCHED_IDLE, os.sched_param(0)))
attempt("limits of the server", lambda: __import__("resource").prlimit(server, 7, (64, 64)))
attempt("read a link outside", lambda: os.readlink(outside + "/link"))
"""

# In the namespaces of bubblewrap these are the command's own.
OWN_INSIDE = {"watch inside", "shared memory", "semaphores", "messages", "message queue"}
NOT_CLAIMED = {"read a link outside"}  # every program resolves links; a filter sees no paths


def test_b31_what_no_path_leads_to_is_kept_apart_or_refused(arena: Arena) -> None:
    link = arena.outside / "link"
    link.symlink_to("somewhere")
    before = (os.getpriority(os.PRIO_PROCESS, arena.pid), os.sched_getaffinity(arena.pid))
    try:
        succeeded = set(arena.python(SHARED, str(arena.outside), str(arena.root), str(arena.pid)))
    finally:
        link.unlink()
    assert (os.getpriority(os.PRIO_PROCESS, arena.pid), os.sched_getaffinity(arena.pid)) == before
    if arena.level == "workspace":
        assert {"watch inside", "shared memory"} <= succeeded <= OWN_INSIDE, succeeded
    else:
        assert succeeded == NOT_CLAIMED, succeeded


# --- B33: who goes first when memory runs out ------------------------------------------------------------

SURVIVE = """
def write(path, value):
    with open(path, "w") as file:
        file.write(value)
for path in ("/proc/self/oom_score_adj", "/proc/%d/oom_score_adj" % os.getpid(), "/proc/thread-self/oom_score_adj",
             "/proc/self/oom_adj", "/proc/1/oom_score_adj"):
    for value in ("-1000", "0", "1", "799"):
        attempt(path + " " + value, lambda: write(path, value))
try:
    with open("/proc/self/oom_score_adj") as file:
        score = int(file.read())
except OSError:
    score = 800  # it can't even be read
if score < 800:
    succeeded.append(score)
"""


def test_b33_a_command_stays_the_first_to_go_when_memory_runs_out(arena: Arena) -> None:
    assert arena.python(SURVIVE) == []
