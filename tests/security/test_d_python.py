"""D08, D09: hostile code in a real CPython. It owns the inside, our program there included, and nothing else."""

import os
import threading
import tracemalloc
from collections.abc import Iterator

import pytest

from ..support.client import Client
from ..support.processes import processes_with
from ..support.python_runs import LEVELS, Runs, run, runs
from ..support.workspace import SECRET, Workspace, hand_over, run_as_at

__all__ = ["run", "runs"]  # the fixtures

# The line to the tools, as code that looks for it finds it.
LINE = """
import json, os
line = next(cell.cell_contents for cell in call.__closure__ if hasattr(cell.cell_contents, "_fd"))
fd, secret = line._fd, line._secret
def send(data, size=None):
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    data = (len(data) if size is None else size).to_bytes(4, "little") + data
    while data:
        data = data[os.write(fd, data):]
frame = {"type": "call", "secret": secret, "name": "call", "values": [], "named": {}}
"""


# Code that no gentle signal ends.
DEAF = """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass
"""


@pytest.fixture(scope="module", params=LEVELS)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Workspace, Client]]:
    """A workspace and a server on it, at each level."""
    Runs(request.param).close()  # skips where there is no such level
    workspace = Workspace(tmp_path_factory.mktemp("d08"))
    arguments = ["code_execution.engine=python", f"sandbox.level={request.param}"]
    if user := run_as_at(request.param):
        arguments.append(f"sandbox.run_as={user}")
        hand_over(workspace.root)
        hand_over(workspace.outside)
    settings = [word for argument in arguments for word in ("--set", argument)]
    with Client("--root", str(workspace.root), *settings, env={"LLMC_TEST_SECRET": SECRET}) as client:
        yield workspace, client


def still_works(runs: Runs) -> None:
    assert runs.value("6 * 7") == 42


# --- D08: files --------------------------------------------------------------------------------------


def test_d08_the_workspace_and_the_outside_are_not_there(place: tuple[Workspace, Client]) -> None:
    workspace, server = place
    kept = workspace.file("kept.txt", SECRET)
    code = f"""
import os, pathlib
root, outside = {str(workspace.root)!r}, {str(workspace.outside)!r}
os.symlink(outside, "link")
os.symlink(root, "root")
seen = []
for path in (outside + "/secret.txt", root + "/kept.txt", "link/secret.txt", "root/kept.txt", "../" * 9 + outside,
             "/proc/1/root" + outside + "/secret.txt", "/proc/self/root" + root + "/kept.txt", "/etc/shadow"):
    for attempt in (lambda: open(path).read(), lambda: os.listdir(path), lambda: open(path, "a").write("x"),
                    lambda: os.link(path, "hard"), lambda: os.unlink(path)):
        try:
            seen.append([path, str(attempt())])
        except OSError:
            pass
print("seen:", seen)
"""
    assert server.call("execute_code", code=code).body == "seen: []\n"
    assert kept.read_text() == SECRET
    assert sorted(item.name for item in workspace.outside.iterdir()) == ["secret.txt"]


def test_d08_links_that_code_makes_lead_tools_nowhere(place: tuple[Workspace, Client]) -> None:
    workspace, server = place
    code = f"""
import os
os.symlink({str(workspace.outside / "secret.txt")!r}, "link")
os.mkfifo("fifo")
codes = []
for path in (os.path.abspath("link"), os.path.abspath("fifo"), "link", "../outside/secret.txt", "/proc/self/environ"):
    try:
        codes.append(read_file(path)["data"])
    except RuntimeError as exc:
        codes.append(str(exc).split(":")[0])
codes
"""
    reply = server.call("execute_code", code=code)
    assert reply.meta["result"] == [
        "INVALID_PATH",
        "INVALID_PATH",
        "NOT_FOUND",
        "INVALID_PATH",
        "INVALID_PATH",
    ]


def test_d08_a_link_swapped_while_tools_read_never_gives_the_outside(place: tuple[Workspace, Client]) -> None:
    workspace, server = place
    (workspace.root / "inside").mkdir(exist_ok=True)
    workspace.file("inside/secret.txt", "inside")
    name, link, stop = workspace.root / "swapped", workspace.root / "next", threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for target in ("inside", str(workspace.outside)):
                link.symlink_to(target)
                os.replace(link, name)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        code = "seen = set()\nfor _ in range(800):\n    try: seen.add(read_file('swapped/secret.txt')['data'])\n"
        code += "    except RuntimeError as exc: seen.add(str(exc).split(':')[0])\nsorted(seen)"
        seen = server.call("execute_code", code=code).meta["result"]
    finally:
        stop.set()
        swapper.join()
    assert "inside" in seen
    assert not any(SECRET in text for text in seen)


def test_d08_memory_and_environment_of_others_are_out_of_reach(place: tuple[Workspace, Client]) -> None:
    _, server = place
    code = f"""
import glob, os
found, server = [], "/proc/{server.process.pid}"
for path in [*glob.glob("/proc/[0-9]*/environ"), server + "/environ", server + "/mem"]:
    if path.split("/")[2] == str(os.getpid()):
        continue
    try:
        if b"LLMC_TEST_" in open(path, "rb").read(1 << 20):
            found.append(path)
    except OSError:
        continue
[found, "LLMC_TEST_SECRET" in os.environ]
"""
    assert server.call("execute_code", code=code).meta["result"] == [[], False]


# --- D09: the machine --------------------------------------------------------------------------------


def test_d09_a_fork_bomb_is_bounded_and_swept(runs: Runs) -> None:
    mark = f"llmc-mark-{os.urandom(6).hex()}"
    code = f"""
import os, subprocess
subprocess.Popen(["bash", "-c", "sleep 1000; true", "{mark}"])
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
    assert "limit exceeded" in runs.message(code, seconds=2)  # of time or, where it is quick, of memory
    assert processes_with(mark) == []
    still_works(runs)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
        ("import os\nos.kill(os.getpid(), 9)", "SIGKILL"),
        ("import os\nos._exit(7)", "exit code 7"),
        ("import os\nos.closerange(0, 100)", "exit code"),
        (DEAF, "time limit"),
    ],
)
def test_d09_an_interpreter_that_breaks_or_clings_to_life_is_only_its_own_end(
    runs: Runs, code: str, words: str
) -> None:
    assert words in runs.message(code, seconds=1.5 if words == "time limit" else 20)
    still_works(runs)


def test_d09_it_cannot_end_its_parents_or_the_server(place: tuple[Workspace, Client]) -> None:
    _, server = place
    code = f"""
import os, signal
for pid in (os.getppid(), {server.process.pid}):
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except OSError:
            pass
try:
    os.kill(-1, signal.SIGTERM)
except OSError:
    pass
"""
    server.call("execute_code", code=code)
    assert server.call("execute_code", code="1").meta["result"] == 1


def test_d09_raw_writes_stay_out_of_the_protocol(place: tuple[Workspace, Client]) -> None:
    _, server = place
    forged = '{"jsonrpc":"2.0","id":1,"result":{"forged":true}}'
    code = f"""
import os
for fd in range(20):
    try:
        os.write(fd, {forged.encode()!r} + bytes([10]))
    except OSError:
        pass
"""
    server.call("execute_code", code=code)
    assert not any(line.startswith(b'{"jsonrpc":"2.0","id":1,"result":{"forged"') for line in server.raw_lines)
    assert server.call("execute_code", code="1").meta["result"] == 1


def test_d09_there_is_no_network(runs: Runs) -> None:
    code = """
import socket
reached = []
for family, kind, address in (
    (socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53)),
    (socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 80)),
    (socket.AF_UNIX, socket.SOCK_STREAM, "/run/docker.sock"),
    (socket.AF_PACKET, socket.SOCK_RAW, ("lo", 0)),
):
    try:
        with socket.socket(family, kind) as end:
            end.settimeout(2)
            end.connect(address)
            end.send(b"x")
            reached.append(str(address))
    except OSError:
        pass
reached
"""
    assert runs.value(code) == []


def test_d09_files_and_memory_are_bounded(runs: Runs) -> None:
    code = """
import resource
try:
    with open("big", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
except OSError as exc:
    print(type(exc).__name__)
import os
os.path.getsize("big") >> 20
"""
    outcome = runs(code)
    assert outcome.failure is None or "SIGXFSZ" in outcome.failure.message, outcome
    assert outcome.failure or int(str(outcome.value)) <= 128
    assert "MemoryError" in runs.message("kept = []\nwhile True: kept.append(bytes(1 << 20))")
    still_works(runs)


def test_d09_many_processes_have_no_more_memory_than_one(runs: Runs) -> None:
    code = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        kept = bytearray(os.urandom(1 << 20)) * 60
        time.sleep(1000)
time.sleep(1000)
"""
    assert "memory limit exceeded: " in runs.message(code, seconds=60)
    shared = (
        "import os, time\nkept = bytearray(60 << 20)\nfor _ in range(6):\n    if os.fork() == 0: time.sleep(1000)\n"
    )
    assert runs(f"{shared}time.sleep(1)\n'fine'").value == "fine"
    still_works(runs)


# --- the line to the tools ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        ("send({**frame, 'secret': 'x' * 32})", "without this run's secret"),
        ("send({**frame, 'secret': 'ä'})", "without this run's secret"),
        ("send({'type': 'end', 'secret': '', 'files': []})", "without this run's secret"),
        ("send(b'not json')", "makes no sense"),
        ("send({'type': 'other', 'secret': secret})", "makes no sense"),
        ("send({**frame, 'values': 7})", "makes no sense"),
        ("send(b'[' * 100_000)", "makes no sense"),
        ("send(b'', size=0)", "makes no sense"),
        ("send(b'\\xff\\xfe')", "makes no sense"),
        ("send(b'', size=(1 << 32) - 1)", "a message of 4,294,967,295 bytes"),
        ("send(b'half', size=1000)", "time limit"),
        ("send({**frame, 'name': '__class__'})\nline._receive()", "time limit"),
        ("while True: send(frame)", "too many tool calls"),
    ],
)
def test_d09_forged_frames_end_the_run_and_nothing_else(run: Runs, attack: str, words: str) -> None:
    called: list[int] = []
    message = run.message(
        f"{LINE}{attack}\nwhile True: pass",
        {"call": lambda: called.append(1)},
        seconds=1 if words == "time limit" else 20,
        calls=50,
    )
    assert words in message
    assert len(called) == (50 if "many" in words else 0)
    still_works(run)


@pytest.mark.parametrize(
    "attack",
    [
        "send(json.dumps({**frame, 'values': [[[]] * 900_000]}).encode())",
        "send(json.dumps({**frame, 'named': {'value': ['ab'] * 600_000}}).encode())",
        "send(json.dumps({**frame, 'values': ['x' * 7_000_000]}).encode())",
    ],
)
def test_d12_forged_arguments_are_measured_before_they_are_decoded(run: Runs, attack: str) -> None:
    called: list[object] = []
    code = f"{LINE}{attack}\njson.loads(line._receive())['message']"
    assert str(run.value(code, {"call": lambda *values, **named: called.append((values, named))})).startswith(
        "TOO_LARGE: the arguments of call have"
    )
    assert called == []
    still_works(run)


def test_d12_a_forged_list_of_files_is_not_decoded_without_bounds(run: Runs) -> None:
    code = f"{LINE}send({{'type': 'end', 'secret': secret, 'files': ['ab'] * 1_000_000, 'value': 1}})\n"
    outcome = run(code, {"call": lambda: None})
    assert (outcome.value, outcome.files) == (1, ())
    still_works(run)


def test_d12_the_words_of_a_forged_failure_are_cut_before_anything_is_looked_for_in_them(run: Runs) -> None:
    message = "\"name '\" + 'a' * 4_000_000 + \"' is not defined\""
    failure = f"{{'kind': 'NameError', 'message': {message}, 'line': 1, 'source': None}}"
    tracemalloc.start()
    try:
        told = run.message(f"{LINE}send({{'type': 'end', 'secret': secret, 'failure': {failure}}})", {"call": int})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert told.startswith("NameError: name 'aaa")
    assert peak < 50 << 20
    still_works(run)


def test_d09_answers_that_nobody_reads_hold_up_only_their_own_run(run: Runs) -> None:
    message = run.message(f"{LINE}while True: send(frame)", {"call": lambda: "x" * 500_000}, seconds=1)
    assert "time limit" in message
    still_works(run)


def test_d09_a_closed_line_is_an_error_in_the_code(run: Runs) -> None:
    code = f"{LINE}os.close(fd)\ntry:\n    call()\nexcept OSError as exc:\n    print('closed')"
    outcome = run(code, {"call": lambda: None})
    assert outcome.stdout == "closed\n"
    assert outcome.failure
    assert "without an answer" in outcome.failure.message


def test_d09_what_outlives_the_code_calls_nothing(runs: Runs) -> None:
    """A fork that goes on calling with the right secret once the code has said that it is done."""
    called: list[int] = []
    code = f"""{LINE}
reading, writing = os.pipe()
if os.fork() == 0:
    os.close(writing)
    os.read(reading, 1)  # until the code's own process is gone
    while True:
        send(frame)
os.close(reading)
'done'
"""
    assert runs.value(code, {"call": lambda: called.append(1)}) == "done"
    assert called == []
    still_works(runs)


def test_d09_a_forged_end_is_the_end(run: Runs) -> None:
    called: list[int] = []
    code = f"""{LINE}
send({{"type": "end", "secret": secret, "files": [], "value": "mine"}})
while True:
    send(frame)
"""
    assert run.value(code, {"call": lambda: called.append(1)}) == "mine"
    assert called == []


def test_d09_one_run_cannot_reach_the_secret_or_the_files_of_another(runs: Runs) -> None:
    """While one waits, holding a marked secret of its own, the other looks everywhere it can."""
    mark, ready, over = f"other-{os.urandom(8).hex()}", threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        over.wait(60)

    def first() -> None:
        runs(f"open('own', 'w').write({mark!r})\nimport os\nprint(os.getcwd())\nwait()", {"wait": wait}, seconds=60)

    holder = threading.Thread(target=first)
    holder.start()
    assert ready.wait(60)
    try:
        code = f"""
import glob, os
hits = []
for path in glob.glob("/tmp/**", recursive=True) + glob.glob("/dev/shm/*") + glob.glob("/proc/[0-9]*/*"):
    if path.startswith("/proc/%d/" % os.getpid()) or not os.path.isfile(path):
        continue
    try:
        if {mark[:6]!r} + {mark[6:]!r} in open(path, "rb").read(1 << 20).decode("latin1"):
            hits.append(path)
    except OSError:
        pass
print("hits:", hits)
"""
        outcome = runs(code, seconds=60)
    finally:
        over.set()
        holder.join()
    assert outcome.stdout == "hits: []\n"


def test_d09_nothing_is_shared_between_runs(runs: Runs) -> None:
    runs("import json, os\njson.dumps = None\nopen(os.path.expanduser('~/left'), 'w').write('x')\nleftover = 1")
    assert "leftover" in runs.message("leftover")
    assert runs.value("import os, json\n[os.path.exists(os.path.expanduser('~/left')), json.dumps([1])]") == [
        False,
        "[1]",
    ]


def test_d09_nothing_is_open_inside_but_the_streams_and_the_line(runs: Runs) -> None:
    code = f"""{LINE}
def kind(number):
    try:
        return os.fstat(number).st_mode >> 12
    except OSError:
        return None
[number for number in range(3, 1000) if kind(number) and number != fd]
"""
    assert runs.value(code, {"call": lambda: None}) == []
