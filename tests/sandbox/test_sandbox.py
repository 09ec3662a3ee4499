"""Which level is chosen, that it is tested first, and that without one no command runs."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.errors import FeatureUnavailable, InvalidArgument
from llmc_mcp.files.filesystem import Filesystem
from llmc_mcp.kernel import syscalls
from llmc_mcp.kernel.launcher import Launcher
from llmc_mcp.kernel.limits import Bounds
from llmc_mcp.sandbox import git_identity, levels, profile, selftest
from llmc_mcp.sandbox.levels import OffLevel
from llmc_mcp.sandbox.profile import SandboxSettings, settings_from
from llmc_mcp.sandbox.sandbox import Sandbox

from ..support.workspace import SECRET, Workspace, hand_over, require, run_as_at

Make = Callable[..., Sandbox]


@pytest.fixture
def make(workspace: Workspace, tmp_path: Path) -> Iterator[Make]:
    """Sandboxes on the workspace, closed at the end."""
    launcher = Launcher()
    made: list[Sandbox] = []

    def build(*, data: Path | None = None, root: Path | None = None, **settings: object) -> Sandbox:
        if "run_as" not in settings and (user := run_as_at(str(settings.get("level")))):
            settings["run_as"] = user
            hand_over(workspace.root)
            hand_over(workspace.outside)
        files = Filesystem([str(root or workspace.root)])
        chosen = SandboxSettings(**settings)  # pyright: ignore[reportArgumentType] - the tests name real settings
        made.append(Sandbox(launcher, chosen, tuple(files.roots), str(data or tmp_path / "data")))
        return made[-1]

    yield build
    for one in made:
        one.close()
    launcher.close()


def output(box: Sandbox, folder: Path, *argv: str) -> tuple[int | None, str]:
    """Exit code and stdout of a command."""
    cwd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with box.start([word.encode() for word in argv], cwd) as child:
            printed = b"".join(child.output(lambda: None))
        return child.exit_code, printed.decode()
    finally:
        os.close(cwd)


@pytest.fixture(params=["workspace", "landlock"])
def level(request: pytest.FixtureRequest) -> str:
    if request.param == "workspace":
        require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")
    return request.param


def test_auto_is_the_strongest_level_that_works(make: Make) -> None:
    require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")
    assert make().level().name == "workspace"


def test_without_bubblewrap_auto_is_landlock_and_says_why(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "SYSTEM_PATH", ("/nonexistent",))
    box = make(run_as=run_as_at("landlock"))
    assert box.level().name == "landlock"
    assert "bubblewrap (bwrap) is not installed" in box.report().reasons["workspace"]


def test_commits_are_made_by_the_user_and_nothing_else_of_his_git_configuration_is_there(
    make: Make, level: str, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(shutil.which("git", path="/usr/local/bin:/usr/bin:/bin") is not None, "git")
    home = tmp_path / "home"
    home.mkdir()
    (home / "more").write_text('[user]\n\tname = "A \\"B\\" \\\\ C"\n')
    (home / ".gitconfig").write_text(
        f"[include]\n\tpath = {home}/more\n[user]\n\temail = ann@example.org\n[alias]\n\tleak = !{SECRET}\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    if run_as_at(level):

        class Entry:
            pw_dir = str(home)
            pw_name = "nobody"

        monkeypatch.setattr(git_identity.pwd, "getpwuid", lambda _: Entry)  # pyright: ignore
        hand_over(home)
    box = make(level=level)
    script = "git init -q . && git commit -q --allow-empty -m x && git log --format='%an <%ae>' && git config -l"
    code, printed = output(box, workspace.root, "/bin/sh", "-c", script)
    assert code == 0, printed
    assert printed.startswith('A "B" \\ C <ann@example.org>\n')
    assert SECRET not in printed
    script = "git config user.email repo@example.org && git commit -q --allow-empty -m y && git log -1 --format=%ae"
    assert output(box, workspace.root, "/bin/sh", "-c", script) == (0, "repo@example.org\n")


def test_without_a_name_of_the_user_git_asks_for_one(
    make: Make, level: str, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(shutil.which("git", path="/usr/local/bin:/usr/bin:/bin") is not None, "git")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    script = "git init -q . && git -c user.useConfigOnly=true commit -q --allow-empty -m x 2>/dev/null"
    assert output(make(level=level), workspace.root, "/bin/sh", "-c", script)[0] == 128


def test_a_level_that_was_asked_for_is_not_replaced_by_a_weaker_one(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "SYSTEM_PATH", ("/nonexistent",))
    with pytest.raises(FeatureUnavailable, match="not installed"):
        make(level="workspace").level()


def test_b18_with_nothing_to_confine_them_no_command_starts(
    make: Make, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "SYSTEM_PATH", ("/nonexistent",))
    monkeypatch.setattr(syscalls, "landlock_abi", lambda: 0)
    with pytest.raises(FeatureUnavailable, match=r"nothing would confine them.*not installed.*Landlock"):
        output(make(), workspace.root, "/usr/bin/touch", "started")
    assert not (workspace.root / "started").exists()


def test_b18_a_bubblewrap_that_fails_is_not_trusted(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "bwrap").write_text("#!/bin/sh\necho bwrap: No permissions to create a new namespace >&2\nexit 1\n")
    (broken / "bwrap").chmod(0o755)
    monkeypatch.setattr(levels, "SYSTEM_PATH", (str(broken), *levels.SYSTEM_PATH))
    hand_over(broken)
    box = make(run_as=run_as_at("landlock"))
    assert box.level().name == "landlock"
    assert "No permissions to create a new namespace" in box.report().reasons["workspace"]


_REPORT = """
import os, sys
from llmc_mcp.files.filesystem import Filesystem
from llmc_mcp.sandbox.profile import SandboxSettings
from llmc_mcp.kernel.launcher import Launcher
from llmc_mcp.sandbox.sandbox import Sandbox
report = Sandbox(Launcher(), SandboxSettings(), tuple(Filesystem([sys.argv[1]]).roots), sys.argv[2]).report()
print(report.level, report.reasons, "as process", os.getpid())
"""


@pytest.mark.parametrize("who", ["user", "root"])
def test_b18_b27_where_user_namespaces_are_forbidden_landlock_is_chosen_but_not_for_root(
    workspace: Workspace, tmp_path: Path, who: str
) -> None:
    require(os.getuid() == 0, "root, to forbid user namespaces in a namespace of its own")
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps -all --inh-caps -all "$@"'
    mapped = ["--map-root-user"] if who == "root" else ["--map-user=1000", "--keep-caps"]
    command = ["unshare", "--user", *mapped, "sh", "-c", forbid, "sh", sys.executable, "-c", _REPORT]
    done = subprocess.run(
        [*command, str(workspace.root), str(tmp_path / "d")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if who == "user":
        assert done.stdout.startswith("landlock {'workspace': "), done.stdout
    else:
        assert done.stdout.startswith(" {'workspace': "), done.stdout
        assert "Set mcp.sandbox.run_as" in done.stdout


def test_the_first_process_of_a_container_is_not_mistaken_for_the_first_one_inside(
    workspace: Workspace, tmp_path: Path
) -> None:
    require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")
    require(os.getuid() == 0, "root, for a process namespace with its own /proc")
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", _REPORT]
    done = subprocess.run(
        [*command, str(workspace.root), str(tmp_path / "d")], capture_output=True, text=True, check=False
    )
    assert done.stdout == "workspace {} as process 1\n", done.stdout + done.stderr


def test_b20_a_sandbox_that_lets_a_probe_through_is_refused(
    make: Make, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "make_level", lambda name, profile: OffLevel(profile))  # pyright: ignore
    box = make()
    with pytest.raises(FeatureUnavailable, match=r"self-test failed.*write_outside.*read_outside"):
        box.level()
    assert {"write_outside", "connect_tcp", "signal_server"} <= set(box.report().not_held["landlock"])


@pytest.mark.parametrize("visits", [1, 2])
def test_b20_a_level_is_refused_for_what_reached_a_port_of_its_test_only_if_it_does_so_again(
    make: Make, level: str, visits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = selftest._was_reached, list[socket.socket]()  # pyright: ignore[reportPrivateUsage]

    def was_reached(listener: socket.socket) -> bool:
        """Another program on this machine connects to the port, once or each time."""
        if listener.family == socket.AF_INET and listener.type == socket.SOCK_STREAM:
            seen.append(listener)
            if len(seen) <= visits:
                with socket.create_connection(listener.getsockname()):
                    return real(listener)
        return real(listener)

    monkeypatch.setattr(selftest, "_was_reached", was_reached)
    box = make(level=level)
    if visits == 1:
        assert box.level().name == level
    else:
        with pytest.raises(FeatureUnavailable, match=r"self-test failed.*connect_tcp"):
            box.level()
    assert len(seen) == 2


def test_a_good_outcome_is_remembered_and_a_bad_one_is_not(
    make: Make, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(level=level).level()
    known = json.loads((tmp_path / "data/sandbox.json").read_text())
    assert [json.loads(key)[1] for key in known] == [level]
    assert (tmp_path / "data/sandbox.json").stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(selftest, "_try", lambda *_: pytest.fail("it was tested again"))  # pyright: ignore
    make(level=level).level()


def test_a_server_inside_other_walls_is_tested_anew() -> None:
    script = "from llmc_mcp.sandbox.selftest import walls; print(walls())"
    plain, walled = (
        subprocess.run([*around, sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        for around in ([], ["setpriv", "--no-new-privs"])
    )
    assert plain != walled


def test_another_bubblewrap_is_tested_anew(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "bwrap").write_bytes(Path("/usr/bin/bwrap").read_bytes())
    (folder / "bwrap").chmod(0o755)
    monkeypatch.setattr(levels, "SYSTEM_PATH", (str(folder), *levels.SYSTEM_PATH))
    box = make(level="workspace")
    assert box.level().name == "workspace"
    (folder / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(FeatureUnavailable):
        box.level()


def test_read_only_means_no_commands(make: Make) -> None:
    with pytest.raises(FeatureUnavailable, match="switched commands off"):
        make(level="read_only").level()


def test_an_unknown_level_is_refused(make: Make) -> None:
    with pytest.raises(InvalidArgument, match="none of"):
        make(level="strict")


def test_off_runs_unconfined_but_with_a_clean_environment(
    make: Make, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMC_TEST_VARIABLE", SECRET)
    box = make(level="off")
    assert output(box, workspace.root, "/bin/cat", str(workspace.outside / "secret.txt")) == (0, f"{SECRET}\n")
    assert SECRET not in output(box, workspace.root, "/usr/bin/env")[1]


def test_off_serves_the_root_of_everything(make: Make) -> None:
    assert output(make(level="off", root=Path("/")), Path("/"), "/bin/pwd") == (0, "/\n")


def test_the_root_of_everything_is_confined_by_bubblewrap(make: Make, workspace: Workspace) -> None:
    require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")
    box = make(root=Path("/"))
    assert output(box, Path("/"), "/bin/pwd") == (0, "/\n")
    assert output(box, workspace.root, "/bin/sh", "-c", "echo made > new; cat new") == (0, "made\n")
    assert (workspace.root / "new").read_text() == "made\n"
    assert box.level().name == "workspace"


def test_the_root_of_everything_is_refused_by_landlock_alone(make: Make) -> None:
    with pytest.raises(FeatureUnavailable, match=r"below the root /.*Install the package bubblewrap"):
        make(level="landlock", root=Path("/")).level()


def test_temporary_files_are_private_where_the_root_holds_the_machines_own(make: Make, workspace: Workspace) -> None:
    require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")
    where = "touch $TMPDIR/one ~/two && echo $TMPDIR $HOME && ls ~"
    private = output(make(), workspace.root, "/bin/sh", "-c", where)
    assert private == (0, "/tmp /tmp/home\ntwo\n")
    for root in ("/", "/tmp"):
        done = output(make(root=Path(root)), workspace.root, "/bin/sh", "-c", where)
        assert done == (0, "/run/tmp /run/home\ntwo\n")
    assert not Path("/tmp/home/two").exists()


def test_the_program_that_a_client_starts_stays_in_place(
    make: Make, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")
    (workspace.root / ".local/bin").mkdir(parents=True)
    start = workspace.root / ".local/bin/llmc-mcp"
    start.symlink_to(workspace.file("tool/llmc-mcp", "#!/bin/sh\n"))
    monkeypatch.setattr(sys, "argv", [str(start)])
    box = make(level="workspace")
    for script in ("ln -sfn /bin/true .local/bin/llmc-mcp", "mv .local away", "echo > .local/bin/new"):
        assert output(box, workspace.root, "/bin/sh", "-c", script)[0] != 0
    assert os.readlink(start) == str(workspace.root / "tool/llmc-mcp")


def test_a_data_directory_in_the_root_is_hidden_and_stays_in_place(make: Make, workspace: Workspace) -> None:
    require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")
    data = workspace.root / ".llmc"
    data.mkdir()
    (data / "llmc.db").write_text(SECRET)
    box = make(data=data)
    assert output(box, workspace.root, "/bin/ls", "-A", ".llmc") == (0, "")
    assert output(box, workspace.root, "/bin/mv", ".llmc", "elsewhere")[0] != 0
    assert output(box, workspace.root, "/bin/rm", "-rf", ".llmc")[0] != 0
    assert output(box, workspace.root, "/usr/bin/touch", "new")[0] == 0
    assert (workspace.root / "new").exists()
    assert (data / "llmc.db").read_text() == SECRET


def test_landlock_refuses_a_root_with_something_to_hide(make: Make, workspace: Workspace) -> None:
    with pytest.raises(FeatureUnavailable, match="can't hide what lies inside a root"):
        make(level="landlock", data=workspace.root / ".llmc").level()


def test_secrets_of_a_home_that_is_a_root_are_hidden(
    make: Make, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")

    class Entry:
        pw_dir = str(workspace.root)
        pw_name = "tester"

    monkeypatch.setattr(profile.pwd, "getpwuid", lambda _: Entry)  # pyright: ignore
    workspace.file(".ssh/id_rsa", SECRET)
    workspace.file(".netrc", SECRET)
    box = make(level="workspace")
    assert output(box, workspace.root, "/bin/sh", "-c", "cat .ssh/* .netrc 2>/dev/null; ls -A .ssh") == (0, "")


def test_what_the_operator_hides_is_hidden(make: Make, workspace: Workspace) -> None:
    require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")
    workspace.file("private/deep/key", SECRET)
    box = make(deny_read=(str(workspace.root / "private/deep"),))
    look = "cat private/deep/key 2>/dev/null; ls private/deep"
    assert output(box, workspace.root, "/bin/sh", "-c", look) == (0, "")
    assert output(box, workspace.root, "/bin/sh", "-c", "echo open > private/new; cat private/new") == (0, "open\n")
    for script in ("mv private away", "rm -r private", "mv private/deep away"):
        assert output(box, workspace.root, "/bin/sh", "-c", script)[0] != 0
    assert (workspace.root / "private/deep/key").read_text() == SECRET


def test_extra_folders_are_readable_or_writable_as_configured(make: Make, workspace: Workspace, level: str) -> None:
    tools, shared = workspace.outside / "tools", workspace.outside / "shared"
    (tools / "bin").mkdir(parents=True)
    shared.mkdir()
    (tools / "bin" / "mytool").write_text("#!/bin/sh\necho mine\n")
    (tools / "bin" / "mytool").chmod(0o755)
    box = make(level=level, extra_read=(str(tools),), extra_write=(str(shared),))
    assert output(box, workspace.root, "/bin/sh", "-c", "mytool") == (0, "mine\n")
    assert output(box, workspace.root, "/usr/bin/touch", str(tools / "x"))[0] != 0
    assert output(box, workspace.root, "/usr/bin/touch", str(shared / "x"))[0] == 0
    assert output(box, workspace.root, "/bin/cat", str(workspace.outside / "secret.txt"))[0] != 0


CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5).send(b'hi')"


def test_the_network_is_there_when_the_operator_allows_it(make: Make, workspace: Workspace, level: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert output(make(level=level), workspace.root, "/usr/bin/python3", "-c", CONNECT, port)[0] == 1
        allowed = make(level=level, network=True)
        assert output(allowed, workspace.root, "/usr/bin/python3", "-c", CONNECT, port)[0] == 0
        with listener.accept()[0] as heard:
            assert heard.recv(2) == b"hi"


def test_as_another_user_commands_own_what_they_make(make: Make, workspace: Workspace, level: str) -> None:
    require(os.getuid() == 0, "root")
    for folder in (workspace.root, *workspace.root.parents):
        if folder.stat().st_mode & 0o011 == 0:
            folder.chmod(folder.stat().st_mode | 0o011)
    os.chown(workspace.root, 65534, 65534)
    box = make(level=level, run_as="nobody")
    assert output(box, workspace.root, "/usr/bin/touch", "mine")[0] == 0
    assert (workspace.root / "mine").stat().st_uid == 65534
    assert output(box, workspace.root, "/usr/bin/id", "-u") == (0, "65534\n")


def test_run_as_must_be_somebody(make: Make) -> None:
    assert "no user" in make(run_as="nobody-of-that-name").report().reasons["every level"]


def test_every_setting_of_the_configuration_reaches_the_sandbox() -> None:
    config = Config()
    config.tools.allow_outbound_network = True
    chosen = config.sandbox
    chosen.level, chosen.run_as = "landlock", "nobody"
    chosen.extra_read, chosen.extra_write, chosen.deny_read = ("a",), ("b",), ("c",)
    chosen.max_processes, chosen.max_memory_mb, chosen.max_file_mb, chosen.max_tmp_mb = 1, 2, 3, 4
    chosen.toolchains = ("d",)
    bounds = Bounds(processes=1, memory_mb=2, file_mb=3, tmp_mb=4)
    settings = SandboxSettings("landlock", True, ("a",), ("b",), ("c",), "nobody", bounds, ("d",))
    assert settings_from(config) == settings


def test_a_symlinked_root_is_reached_by_both_its_names(make: Make, workspace: Workspace, level: str) -> None:
    link = workspace.root.parent / "link"
    link.symlink_to(workspace.root)
    workspace.file("a", "x")
    box = make(level=level, root=link)
    assert output(box, link, "/bin/cat", str(workspace.root / "a")) == (0, "x")
    assert output(box, link, "/bin/cat", str(link / "a")) == (0, "x")


def test_a_working_directory_that_is_gone_is_said_so(make: Make, workspace: Workspace) -> None:
    require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")
    box = make()
    gone = workspace.root / "gone"
    gone.mkdir()
    cwd = os.open(gone, os.O_RDONLY | os.O_DIRECTORY)
    gone.rmdir()
    try:
        with box.start([b"/usr/bin/true"], cwd) as child:
            list(child.output(lambda: None))
    finally:
        os.close(cwd)
    assert not child.executed
    assert box.not_executed("true", child.stderr).message == "the working directory is gone"
    assert box.level().name == "workspace"


def test_a_sandbox_that_breaks_while_the_server_runs_fails_closed(
    make: Make, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = make(level="landlock")
    level = box.level()
    monkeypatch.setattr(level, "_seccomp", b"\0" * 8)  # not a program: the kernel refuses it
    with pytest.raises(FeatureUnavailable, match="the command was not run"):
        output(box, workspace.root, "/usr/bin/touch", "started")
    assert not (workspace.root / "started").exists()
    known = json.loads((tmp_path / "data/sandbox.json").read_text())
    assert list(known.values()) == [None], "it is tested anew"
    assert output(box, workspace.root, "/usr/bin/touch", "started")[0] == 0
