"""Commands can't get out: attacks B01 to B23, at every level, as root and as an ordinary user."""

import os
import shlex
import shutil
import socket
import threading
from collections.abc import Iterator

import pytest

from ..support.workspace import SECRET
from .arena import LEVELS, TOOLS, USERS, Arena, reached
from .bypasses import BYPASSES, COMMIT

COMBINATIONS = [(level, who) for level in LEVELS for who in USERS]


@pytest.fixture(scope="module", params=COMBINATIONS, ids="-".join)
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    with Arena(*request.param) as made:
        yield made


def bypass_script(targets: str) -> str:
    """Every bypass in a folder of its own, its output thrown away, one after the other."""
    lines = ["cd $(mktemp -d) || exit 1", f"COMMIT={shlex.quote(COMMIT)}"]
    for number, line in enumerate(BYPASSES.values()):
        lines += [
            f"mkdir {number} && cd {number}",
            f"export T={targets}/{number} P=$PWD/../p{number}",
            "printf '#!/bin/sh\\ntouch %s\\n' $T > $P; chmod 755 $P",
            f"( {line} ) > /dev/null 2>&1 < /dev/null",
            "cd ..",
        ]
    return "\n".join(lines) + "\n"


def test_b01_no_bypass_of_the_list_has_an_effect_outside(arena: Arena) -> None:
    inside = arena.root / "b01"
    for folder, name in ((inside, "in.sh"), (arena.outside, "out.sh")):
        folder.mkdir(exist_ok=True)
        (arena.root / name).write_text(bypass_script(str(folder)))
    arena.hand_over()
    control = arena.run(["bash", "in.sh"], timeout=110)
    assert control["exit_code"] == 0, control
    attack = arena.run(["bash", "out.sh"], timeout=110)
    assert attack["exit_code"] == 0, attack
    worked = {name for number, name in enumerate(BYPASSES) if os.path.lexists(inside / str(number))}
    assert len(BYPASSES) >= 80
    assert len(worked) >= 80, sorted(BYPASSES.keys() - worked)
    assert arena.outside_listing() == ["secret.txt"]
    assert (arena.outside / "secret.txt").read_text() == SECRET


@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("level", LEVELS)
def test_b02_a_program_is_what_it_is_not_what_it_is_called(level: str, who: str) -> None:
    with Arena(level, who, tools={"run_cmd_allowlist": ["cat", "ls"]}) as arena:
        (arena.root / "ls").symlink_to("/bin/sh")
        script = arena.root / "cat"
        script.write_text("#!/bin/sh\necho hijacked\n")
        script.chmod(0o755)
        (arena.root / "real").symlink_to("/bin/cat")
        arena.hand_over()
        assert arena.run(["./ls", "-c", "true"])["error"] == "COMMAND_NOT_ALLOWED"
        assert arena.run(["./cat"])["error"] == "COMMAND_NOT_ALLOWED"
        assert arena.run(["sh", "-c", "true"])["error"] == "COMMAND_NOT_ALLOWED"
        assert arena.run(["cat"], stdin="mine")["stdout"] == "mine"
        assert arena.run(["./real"], stdin="linked")["stdout"] == "linked"


def test_b03_a_program_swapped_after_the_check_stays_in_the_sandbox(arena: Arena) -> None:
    evil = arena.root / "evil"
    evil.write_text(f"#!/bin/sh\necho swapped\ntouch {arena.outside}/b03\n")
    evil.chmod(0o755)
    tool = arena.root / "tool"
    arena.hand_over()
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for target in ("/usr/bin/true", "evil"):
                (arena.root / "new").symlink_to(target)
                (arena.root / "new").rename(tool)

    swapper = threading.Thread(target=swap)
    tool.symlink_to("/usr/bin/true")
    swapper.start()
    try:
        answers = [arena.run(["./tool"]) for _ in range(30)]
    finally:
        done.set()
        swapper.join()
    assert any("exit_code" in answer for answer in answers)
    assert arena.outside_listing() == ["secret.txt"]


def test_b04_the_environment_is_built_from_nothing(arena: Arena) -> None:
    printed = arena.run(["env"])["stdout"]
    names = {line.partition("=")[0] for line in printed.splitlines()}
    allowed = {"LLMC_COMMAND", "PATH", "HOME", "TMPDIR", "LANG", "TERM", "USER", "LOGNAME", "GIT_TERMINAL_PROMPT"}
    for_te = {"TE_AGENT_ID", "TE_SESSION_ID", "TE_MODEL"}  # who calls, as far as the caller says so himself
    assert names <= allowed | for_te | {"PYTHONDONTWRITEBYTECODE", "PWD"}
    assert SECRET not in printed


@pytest.mark.parametrize("word", [";", "&&", "|", "$(id)", "`id`", "\n", ">", "$HOME", "*", "a;touch x", "-n\nx"])
def test_b05_metacharacters_are_plain_arguments(arena: Arena, word: str) -> None:
    printed = arena.run(["python3", "-c", "import sys; print(ascii(sys.argv[1]))", word])["stdout"]
    assert printed == ascii(word) + "\n"


def test_b06_impossible_arguments_are_refused_cleanly(arena: Arena) -> None:
    assert arena.run(["echo", "a\0b"])["error"] == "BAD_ARGS"
    assert arena.run(["echo", "a" * 3_000_000])["error"] == "BAD_ARGS"
    assert arena.run("")["error"] == "BAD_ARGS"
    assert arena.run([])["error"] == "BAD_ARGS"
    unclosed = arena.run("echo 'open")  # the shell's own complaint, where lines can be parsed at all
    assert unclosed.get("exit_code") == 2 or unclosed["error"] == "BAD_ARGS"
    assert arena.run(["echo", *["x"] * 8_000])["stdout"].startswith("x x x")
    many = arena.run(["echo", *["x"] * 10_000])  # more than bubblewrap takes
    assert many.get("error") == ("BAD_ARGS" if arena.level == "workspace" else None)
    assert arena.run(["/nonexistent/program"])["error"] == "NOT_FOUND"


WRITES = """
outside, root = sys.argv[1:]
secret, new = outside + "/secret.txt", outside + "/new"
os.symlink(outside, root + "/door")
os.symlink(secret, root + "/window")
open(root + "/mine", "w").close()
attempt("create", lambda: open(new, "w"))
attempt("overwrite", lambda: open(secret, "w"))
attempt("append", lambda: open(secret, "a"))
attempt("truncate", lambda: os.truncate(secret, 0))
attempt("open truncating", lambda: os.open(secret, os.O_RDONLY | os.O_TRUNC))
attempt("through a folder link", lambda: open(root + "/door/new", "w"))
attempt("through a file link", lambda: open(root + "/window", "w"))
attempt("dotdot", lambda: open(root + "/../outside/new", "w"))
attempt("proc root", lambda: open("/proc/self/root" + new, "w"))
attempt("mkdir", lambda: os.mkdir(new))
attempt("mknod", lambda: os.mknod(new))
attempt("symlink", lambda: os.symlink("x", new))
attempt("link out", lambda: os.link(root + "/mine", new))
attempt("link in", lambda: os.link(secret, root + "/stolen"))
attempt("rename out", lambda: os.rename(root + "/mine", new))
attempt("rename in", lambda: os.rename(secret, root + "/stolen"))
attempt("unlink", lambda: os.unlink(secret))
attempt("rmdir", lambda: os.rmdir(outside))
attempt("home", lambda: open("/root/llmc-b07", "x"))
attempt("etc", lambda: open("/etc/llmc-b07", "x"))
attempt("usr", lambda: open("/usr/llmc-b07", "x"))
attempt("bind mount", lambda: call(165, root.encode(), outside.encode(), None, 4096, None))
attempt("chroot", lambda: os.chroot(root))
attempt("chmod", lambda: os.chmod(secret, 0o600))
attempt("utime", lambda: os.utime(secret, (1, 1)))
attempt("setxattr", lambda: os.setxattr(secret, "user.x", b"1"))
attempt("chown", lambda: os.chown(secret, os.getuid(), os.getgid()))
"""

# What Landlock does not know: who may change a file's mode, times and owner without opening it.
LANDLOCK_GAPS = {"chmod", "utime", "chown"}


def test_b07_nothing_outside_is_written(arena: Arena) -> None:
    succeeded = set(arena.python(WRITES, str(arena.outside), str(arena.root)))
    assert succeeded <= (set() if arena.level == "workspace" else LANDLOCK_GAPS), succeeded
    assert arena.outside_listing() == ["secret.txt"]
    assert (arena.outside / "secret.txt").read_text() == SECRET
    for path in ("/root/llmc-b07", "/etc/llmc-b07", "/usr/llmc-b07"):
        assert not os.path.lexists(path)


READS = """
home, outside, data = sys.argv[1:]
def read(path):
    with open(path, "rb") as file:
        file.read(1)
for path in (home + "/.ssh/id_rsa", home + "/.aws/credentials", outside + "/secret.txt", "/etc/shadow",
             "/proc/self/root" + outside + "/secret.txt", "/proc/1/environ", "/dev/mem", "/dev/kmsg", "/proc/kcore",
             "/var/log/dpkg.log", "/etc/ssh/ssh_host_ed25519_key", "/sys/kernel/notes"):
    attempt("read " + path, lambda: read(path))
for path in (home, home + "/.ssh", outside, data, "/home", "/var/log", "/etc/ssh", "/run", "/boot", "/sys"):
    attempt("list " + path, lambda: os.listdir(path) or (_ for _ in ()).throw(OSError()))
for path in (home + "/.ssh", outside + "/secret.txt", data):
    attempt("see " + path, lambda: os.lstat(path))
"""


def test_b08_no_secret_of_the_user_or_the_server_is_read(arena: Arena) -> None:
    succeeded = set(arena.python(READS, str(arena.home), str(arena.outside), str(arena.home / "data")))
    if arena.level == "workspace":
        # The process 1 that it sees is its own.
        assert succeeded <= {"read /proc/1/environ"}, succeeded
    else:
        assert {name for name in succeeded if not name.startswith("see ")} == set(), succeeded


NETWORK = """
outside, root, tcp, udp, abstract = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
def connect(family, kind, address, protocol=0):
    with socket.socket(family, kind, protocol) as end:
        end.settimeout(2)
        end.connect(address)
        end.send(b"x")
attempt("tcp", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", tcp)))
attempt("tcp6", lambda: connect(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", tcp)))
attempt("udp", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", udp)))
attempt("abstract", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + abstract))
attempt("path", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, outside + "/docker.sock"))
os.symlink(outside, root + "/run")
attempt("path by link", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, root + "/run/docker.sock"))
attempt("ping", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0), socket.IPPROTO_ICMP))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("alg", lambda: socket.socket(38, socket.SOCK_SEQPACKET))
attempt("dns", lambda: socket.getaddrinfo("example.org", 80))
attempt("dev tcp", lambda: 0 if os.system("exec 3<>/dev/tcp/127.0.0.1/%d" % tcp) == 0 else 1 / 0)
"""


def test_b09_b23_nobody_is_reached_when_the_network_is_off(arena: Arena) -> None:
    abstract = f"llmc-b09-{os.getpid()}"
    path = arena.outside / "docker.sock"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as by_path,
        socket.socket(socket.AF_UNIX) as by_name,
    ):
        udp.bind(("127.0.0.1", 0))
        by_path.bind(str(path))
        by_name.bind(f"\0{abstract}")
        by_path.listen()
        by_name.listen()
        path.chmod(0o777)
        ports = (str(tcp.getsockname()[1]), str(udp.getsockname()[1]))
        try:
            succeeded = set(arena.python(NETWORK, str(arena.outside), str(arena.root), *ports, abstract))
            assert not any(reached(end) for end in (tcp, udp, by_path, by_name))
        finally:
            path.unlink()
            (arena.root / "run").unlink()
    # In its own network a datagram may be sent to nobody, and a ping answered by oneself.
    assert succeeded <= ({"udp", "ping"} if arena.level == "workspace" else set()), succeeded


def test_b09_a_missed_network_is_explained(arena: Arena) -> None:
    done = arena.run(["python3", "-c", "import urllib.request as u; u.urlopen('http://example.org')"])
    assert done["exit_code"] == 1
    assert any("llmc allow network" in warning for warning in done["warnings"]), done


SPYING = """
server = int(sys.argv[1])
def read(name):
    with open("/proc/%d/%s" % (server, name), "rb") as file:
        file.read(1)
for name in ("environ", "mem", "maps", "fd/0", "cwd", "root", "stack", "auxv"):
    attempt(name, lambda: read(name) if name != "cwd" else os.listdir("/proc/%d/cwd" % server))
buffer = ctypes.create_string_buffer(8)
vector = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
attempt("ptrace", lambda: call(101, 16, server, 0, 0))
attempt("process_vm_readv", lambda: call(310, server, ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0))
attempt("pidfd_getfd", lambda: call(438, os.pidfd_open(server), 0, 0))
attempt("kill", lambda: os.kill(server, 0))
attempt("kill all", lambda: os.kill(-1, 0))
attempt("prlimit", lambda: __import__("resource").prlimit(server, 7, (10, 10)))
attempt("renice", lambda: os.setpriority(os.PRIO_PROCESS, server, 19))
"""


def test_b11_the_servers_memory_environment_and_life_are_out_of_reach(arena: Arena) -> None:
    succeeded = set(arena.python(SPYING, str(arena.pid)))
    assert succeeded <= {"kill all"}, succeeded  # "all" are those inside
    assert arena.run(["true"])["exit_code"] == 0


KERNEL = """
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/proc/mtrr",
             "/proc/irq/default_smp_affinity", "/sys/kernel/uevent_helper", "/sys/power/state",
             "/sys/fs/cgroup/pids/cgroup.procs", "/sys/fs/cgroup/cgroup.procs", "/proc/self/oom_score_adj_x"):
    attempt("write " + path, lambda: os.close(os.open(path, os.O_WRONLY)))
attempt("shadow", lambda: open("/etc/shadow").read(1))
attempt("capability", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("setuid", lambda: os.setuid(12345))
attempt("device", lambda: os.mknod(sys.argv[1] + "/dev", 0o600 | 0o020000, os.makedev(1, 3)))
"""


def test_b12_root_is_nobody_inside(arena: Arena) -> None:
    assert arena.python(KERNEL, str(arena.root)) == []


SYSCALLS = """
CLONE = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000}
for name, flag in CLONE.items():
    attempt("unshare " + name, lambda: call(272, flag))
    def clone():
        pid = call(56, flag | 17, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    attempt("clone " + name, clone)
attempt("clone3", lambda: call(435, None, 0))
attempt("mount", lambda: call(165, b"none", b"/tmp", b"tmpfs", 0, None))
attempt("setns", lambda: call(308, 0, 0))
attempt("io_uring", lambda: call(425, 1, ctypes.create_string_buffer(120)))
attempt("bpf", lambda: call(321, 0, ctypes.create_string_buffer(120), 72))
attempt("keyctl", lambda: call(250, 0, -3, 1))
attempt("add_key", lambda: call(248, b"user", b"x", b"y", 1, -3))
attempt("userfaultfd", lambda: call(323, 1))
attempt("perf", lambda: call(298, ctypes.create_string_buffer(b"\\0" * 4 + b"\\x80", 128), 0, -1, -1, 0))
attempt("open_by_handle", lambda: call(304, -100, ctypes.create_string_buffer(8), 0))
attempt("fanotify", lambda: call(300, 0, 0))
attempt("x32", lambda: call(0x40000000 + 39))
import errno as e
def refused(number, *arguments):
    try:
        call(number, *arguments)
    except OSError as exc:
        return exc.errno
refusals = [refused(101, 0, 0, 0, 0), refused(272, 0), refused(425, 1, None), refused(321, 0, None, 0), refused(250, 0)]
if set(refusals) != {e.EPERM} or refused(435, None, 0) != e.ENOSYS:
    succeeded.append("not refused by the filter: %r" % refusals)
for request in (0x5412, 0x541C):  # TIOCSTI, TIOCLINUX: refused before anybody looks for a terminal
    if refused(16, 0, request, b"x") != e.EPERM:
        succeeded.append("ioctl %x" % request)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system call numbers of x86_64")
def test_b13_doors_of_the_kernel_are_shut(arena: Arena) -> None:
    assert arena.python(SYSCALLS) == []


INT80 = """
import mmap
code = b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3"  # mov eax, 20 (getpid of 32 bits); int 0x80; ret
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
pid = os.fork()
if pid == 0:
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    os._exit(0)
succeeded.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="32-bit calls of x86")
def test_b13_a_32_bit_call_ends_the_process(arena: Arena) -> None:
    assert arena.python(INT80) in ([-31], [-11]), "SIGSYS, or SIGSEGV where the kernel has no 32-bit calls"


def test_b14_set_uid_programs_give_nothing(arena: Arena) -> None:
    status = arena.python("succeeded = [libc.prctl(39, 0, 0, 0, 0), os.getuid(), os.geteuid()]")
    assert status[0] == 1
    assert status[1] == status[2]
    if os.getuid() == 0:
        suid = arena.root / "suid"
        shutil.copyfile("/usr/bin/id", suid)
        suid.chmod(0o4755)  # still root's
        expected = arena.run(["id", "-u"])["stdout"]
        assert arena.run(["bash", "-c", "./suid -u"])["stdout"] == expected
    for command in ("su -c id root", "sudo -n id", "mount -t tmpfs none /tmp"):
        assert arena.run(["bash", "-c", f"{command} < /dev/null"])["exit_code"] != 0


FDS = """
for number in range(4096):
    try:
        os.fstat(number)
    except OSError:
        continue
    succeeded.append(number)
"""


def test_b15_only_the_standard_descriptors_are_open(arena: Arena) -> None:
    assert arena.python(FDS) == [0, 1, 2]


def test_b16_standard_input_is_empty_and_not_the_protocols(arena: Arena) -> None:
    assert arena.run(["cat"])["stdout"] == ""
    flood = '{"jsonrpc":"2.0","id":1,"result":{}}'
    done = arena.run(["bash", "-c", f"for i in 1 2 3; do echo {shlex.quote(flood)}; done"])
    assert done["stdout"].count(flood) == 3
    assert arena.run(["echo", "next"])["stdout"] == "next\n"


def test_b17_the_working_directory_is_inside_or_refused(arena: Arena) -> None:
    (arena.root / "sub").mkdir(exist_ok=True)
    (arena.root / "exit").symlink_to(arena.outside)
    arena.hand_over()
    assert arena.run(["bash", "-c", "pwd"], cwd="sub")["stdout"] == f"{arena.root}/sub\n"
    for cwd in (str(arena.outside), "..", "exit", "/", "sub/../.."):
        assert arena.run(["true"], cwd=cwd)["error"] == "INVALID_PATH", cwd
    assert arena.run(["true"], cwd="missing")["error"] == "NOT_FOUND"
    assert arena.run(["true"], cwd="in.sh" if (arena.root / "in.sh").exists() else "exit/x").get("error")


def test_b21_a_link_in_the_root_makes_nothing_outside(arena: Arena) -> None:
    for name in (".git", ".ssh", ".config", "tmp"):
        (arena.root / name).symlink_to(f"/oldroot{arena.outside}")
    try:
        assert arena.run(["true"])["exit_code"] == 0
        assert arena.outside_listing() == ["secret.txt"]
    finally:
        for name in (".git", ".ssh", ".config", "tmp"):
            (arena.root / name).unlink()


def test_b22_files_that_programs_obey_are_reported_when_a_command_changes_them(arena: Arena) -> None:
    (arena.root / "repo").mkdir()
    arena.hand_over()

    def warned(script: str) -> str:
        done = arena.run(["bash", "-c", script], cwd="repo")
        assert done["exit_code"] == 0, done
        # What other attacks left in the arena, a FIFO for one, may change its owner meanwhile.
        return " ".join(warning for warning in done["warnings"] if not warning.startswith("Undo "))

    assert ".git/config" in warned("git init -q .")
    assert warned("git status") == ""
    assert ".git/config" in warned("git config core.fsmonitor /tmp/evil")
    assert ".git/hooks/pre-commit" in warned("echo evil > .git/hooks/pre-commit")
    assert ".mcp.json" in warned("echo {} > .mcp.json")
    assert ".envrc" in warned("echo evil > .envrc")
    assert "llmc.toml" in warned("echo > llmc.toml")
    assert ".git" in warned("mv .git g; echo gitdir: g > .git")


def test_the_allowlist_of_the_arena_can_start_anything() -> None:
    assert {"bash", "python3", "git", "find", "tar"} <= set(TOOLS)
