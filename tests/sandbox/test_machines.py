"""One machine per session: its commands share localhost and /tmp, and nobody else reaches them."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.kernel.namespaces import MachineSpec
from llmc_mcp.sandbox.machines import Machine, Machines
from llmc_mcp.tools.introduction import bootstrap

from ..security.arena import USERS, Arena
from ..support.client import PATIENCE
from ..support.gates import gate_on
from ..support.talk import Talk, eventually, open_files, talk_on
from ..support.workspace import SECRET, Workspace, hand_over, require

SERVE = """
import http.server, os, sys
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print(server.server_port, flush=True)
server.serve_forever()
"""
# The status of a page, or the name of what went wrong.
GET = """
import sys, urllib.request
try:
    print(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/", timeout=5).status)
except OSError as exc:
    print(type(getattr(exc, "reason", exc)).__name__)
"""


@pytest.fixture
def talk(workspace: Workspace) -> Iterator[Talk]:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    with talk_on(workspace.root, level="workspace") as talk:
        yield talk


def serve(talk: Talk) -> str:
    """Start a web server in the background; returns its port."""
    process = talk.run(["python3", "-c", SERVE], yield_after=0).process
    printed = ""

    def has_printed() -> bool:
        nonlocal printed
        printed += talk.run(process=process, yield_after=0.05).data.stdout
        return printed.endswith("\n")

    assert eventually(has_printed)
    return printed.strip()


def namespaces_held() -> int:
    """How many network and mount namespaces this process keeps in being."""
    return sum(target.startswith(("net:[", "mnt:[")) for target in open_files())


def status(talk: Talk, port: str) -> str:
    return talk.run(["python3", "-c", GET, port]).data.stdout.strip()


def test_a_server_in_one_call_is_reached_in_the_next_and_by_no_other_session(talk: Talk) -> None:
    port = serve(talk)
    assert status(talk, port) == "200"
    shown = talk.start(["python3", "-c", GET, port], wait_ms=int(PATIENCE * 1000)).first_output
    assert shown.strip() == "200"
    others = (Talk(talk.gate, "another"), Talk(talk.gate, principal="token:x"))
    assert [status(other, port) for other in others] == ["ConnectionRefusedError"] * 2
    with socket.socket() as outside, pytest.raises(ConnectionRefusedError):
        outside.connect(("127.0.0.1", int(port)))


def test_te_run_and_a_terminal_are_on_the_same_machine(talk: Talk) -> None:
    talk.run("echo from run_cmd > /tmp/note")
    assert "from run_cmd" in talk.start("cat /tmp/note", wait_ms=int(PATIENCE * 1000)).first_output
    assert talk.start("echo from a terminal | tee /tmp/note", wait_ms=int(PATIENCE * 1000)).exit_code == 0
    context = talk.gate.context(talk.session, "cid")
    told = talk.gate.call(context, "te_run", {"command": ["cat", "/tmp/note"]})
    assert "from a terminal" in str(told)


def test_tmp_is_shared_within_a_session_and_with_nobody_else(talk: Talk) -> None:
    name = f"llmc-machine-{os.getpid()}"
    assert talk.run(f"echo mine > /tmp/{name}; mkdir -p ~/.cache; ls -d ~/.cache").data.stdout == "/tmp/home/.cache\n"
    assert talk.run(f"cat /tmp/{name} /var/tmp/{name}").data.stdout == "mine\nmine\n"
    assert talk.run("ls -d ~/.cache").data.exit_code == 0
    assert name not in Talk(talk.gate, "another").run("ls -A /tmp").data.stdout
    assert not os.path.exists(f"/tmp/{name}")


def test_the_machines_own_network_is_out_of_reach(talk: Talk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        assert status(talk, str(outside.getsockname()[1])) == "ConnectionRefusedError"
    interfaces = talk.run("cut -d: -f1 -s /proc/net/dev").data.stdout.split()
    assert interfaces[-1:] == ["lo"]
    assert len(interfaces) <= 3  # and two headings


def test_tmp_has_one_bound_for_all_commands_of_a_session(workspace: Workspace) -> None:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    config = Config()
    config.sandbox.max_tmp_mb = 4
    with talk_on(workspace.root, config, level="workspace") as talk:
        assert talk.run("head -c 3M /dev/zero > /tmp/a").data.exit_code == 0
        full = talk.run("head -c 3M /dev/zero > /tmp/b")
        assert full.data.exit_code != 0
        assert "No space left" in full.data.stderr
        assert talk.run("rm /tmp/a && head -c 2M /dev/zero > /tmp/b").data.exit_code == 0
        files = talk.run("cd /tmp && seq 100000 | xargs touch")
        assert "No space left" in files.data.stderr  # nor can they be used up by empty files


def test_the_machine_of_a_session_that_runs_nothing_goes_by_itself(workspace: Workspace) -> None:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    before = namespaces_held()
    config = Config()
    config.linux_ops.process_limits.idle_reap_sec = 0.1
    with talk_on(workspace.root, config, level="workspace") as talk:
        assert talk.run("echo kept > /tmp/note; cat /tmp/note").data.stdout == "kept\n"
        assert namespaces_held() > before

        def let_go() -> bool:
            talk.gate.app.release_idle(3_600.0)  # no helper process has been idle for that long
            return namespaces_held() == before

        assert eventually(let_go)
        assert talk.run("cat /tmp/note").data.exit_code == 1, "another machine, whose /tmp is empty"


def test_a_session_that_waits_for_its_command_is_not_the_first_to_lose_its_machine() -> None:
    machines, made = Machines(3_600.0, lambda _: None), list[object]()
    spec = MachineSpec(
        network=False, tmp="", size_mb=1, owner=None, folders=[], files=[], links=[], home="", home_files=[]
    )

    def use(owner: int) -> None:
        machines.of(owner, spec, lambda _: made.append(owner) or Machine((), ""))

    for owner in range(64):
        use(owner)
    machines.touch(0)
    for owner in (64, 0, 1):
        use(owner)
    assert made == [*range(65), 1]


@pytest.mark.parametrize("who", USERS)
def test_what_a_command_does_to_its_tmp_leads_the_next_one_nowhere(who: str) -> None:
    """Mounts of the next command lie below /tmp here: nothing on the way to them can be replaced by a link."""
    with Arena("workspace", who) as arena:
        first = arena.root.relative_to("/tmp").parts[0]
        script = f"""
            cd /tmp
            mv {first} moved; rm -rf {first}; rmdir {first}
            mkdir {first}/new; touch {first}/new; ln -s {arena.outside} {first}/link
            rm -rf home && ln -s {arena.outside} home
            ln -s {arena.outside} outside
            ls -A /tmp /tmp/{first}
        """
        listing = arena.run(["bash", "-c", script])["stdout"]
        assert "moved" not in listing
        assert "new" not in listing
        after = arena.run(["bash", "-c", "echo ran; ls -A ~/ /tmp/outside/; cat ~/secret.txt; touch here; pwd"])
        assert after["stdout"].startswith("ran\n"), after
        assert SECRET not in after["stdout"]
        assert after["stdout"].endswith(f"{arena.root}\n")
        assert (arena.root / "here").exists()
        assert arena.outside_listing() == ["secret.txt"]


@pytest.mark.parametrize("who", USERS)
def test_a_machine_gives_no_power_over_itself(who: str) -> None:
    with Arena("workspace", who) as arena:
        script = """
            grep -E 'Cap(Eff|Prm|Bnd|Amb)' /proc/self/status
            python3 -c "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print('mount', libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))
print('umount', libc.umount2(b'/tmp', 2))
print('unshare', libc.unshare(0x10000000))
"
        """
        printed = arena.run(["bash", "-c", script])["stdout"]
        assert "CapEff:\t0000000000000000" in printed
        assert [line for line in printed.splitlines() if line.endswith(" 0")] == []


def test_commands_that_run_as_another_user_share_a_machine_too(workspace: Workspace) -> None:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    require(os.getuid() == 0, "root")
    config = Config()
    config.sandbox.run_as = "nobody"
    hand_over(workspace.root)
    with talk_on(workspace.root, config, level="workspace") as talk:
        assert talk.run("id -u; echo a > /tmp/x; echo b > ~/y").data.stdout == "65534\n"
        assert talk.run("cat /tmp/x ~/y").data.stdout == "a\nb\n"


def test_nothing_of_a_machine_is_left(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    before = namespaces_held()
    with talk_on(workspace.root, level="workspace") as talk:
        talk.run("echo > /tmp/a")
        Talk(talk.gate, "another").run("echo > /tmp/a")
        assert str(place) not in Path("/proc/self/mountinfo").read_text()  # none of theirs is seen outside
        assert namespaces_held() == before + 4
    assert list(place.iterdir()) == []
    assert namespaces_held() == before


@pytest.mark.parametrize(
    ("level", "words"),
    [
        ("workspace", "no network; localhost, /tmp per session"),
        ("landlock", "no network; TMPDIR: the server's"),
        ("off", "network, /tmp: the host's"),
    ],
)
def test_the_introduction_says_what_holds(workspace: Workspace, level: str, words: str) -> None:
    with talk_on(workspace.root, level=level) as talk:
        text = bootstrap(talk.gate.app, talk.gate.catalog)
        assert words in text
        assert "past 10 s: background" in text


def test_the_introduction_is_silent_about_commands_that_are_off(workspace: Workspace) -> None:
    config = Config()
    config.tools.enable_run_cmd = False
    with gate_on(workspace.root, config) as gate:
        assert "background" not in bootstrap(gate.app, gate.catalog)
