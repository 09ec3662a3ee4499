"""The onboarding flows: a plan that is true, moves that lose nothing, reports that a person can use."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.errors import FeatureDisabled, InvalidArgument, InvalidPath, NotADirectory, NotFound, Stale
from llmc_mcp.machine.downloads import downloads_folder
from llmc_mcp.machine.health import HealthCheck
from llmc_mcp.machine.processes import Processes, visible_from
from llmc_mcp.machine.sysinfo import Disk, Snapshot, SystemInfo
from llmc_mcp.tokens import estimate
from scripts import onboarding_page

from .support.gates import context, gate_on
from .support.gates import text_of as sent
from .support.workspace import Workspace

TOOL = "linux_mcp_run_onboarding"
YEAR_2021, YEAR_2023 = 1_620_000_000, 1_690_000_000

Run = Callable[..., dict[str, Any]]


def tree(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Every file by its path: what it holds, when it was written, which file it is."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
            path.stat().st_ino,
        )
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


@pytest.fixture
def downloads(workspace: Workspace) -> Path:
    folder = workspace.root / "Downloads"
    folder.mkdir()
    return folder


@pytest.fixture
def call(workspace: Workspace) -> Iterator[Callable[..., dict[str, Any]]]:
    """Call a tool, get its object."""
    config = Config()
    config.server.result_format = "json"
    with gate_on(workspace.root, config) as gate:

        def run(tool: str, /, **arguments: object) -> dict[str, Any]:
            return json.loads(sent(gate, tool, None, **arguments))

        yield run


def organize(call: Run, **more: object) -> dict[str, Any]:
    return call(TOOL, flow_name="organize_downloads", **more)


def said(report: dict[str, Any], description: str) -> str:
    """The result of the step of that name."""
    return next(step["result"] for step in report["steps"] if step["description"].startswith(description))


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text(f"content of {name}")


# --- the plan ------------------------------------------------------------------------------------------------------


def test_a_plan_says_what_would_go_where_and_changes_nothing(downloads: Path, call: Run) -> None:
    fill(downloads, "letter.pdf", "photo.JPG", "photo.png", "song.mp3", "app.deb", "tool.tar.gz", "what", "x.unknown")
    before = tree(downloads)
    report = organize(call)
    assert tree(downloads) == before
    assert report["proposed"] is True
    assert report["summary"].startswith("8 files")
    assert "Nothing was changed" in report["summary"]
    moved = said(report, "Would move")
    for line in ("Documents/ (new) 1 file", "Images/ (new) 2 files", "Archives/ (new) 1", "Other/ (new) 2 files"):
        assert line in moved
    every_move = call("linux_handle_read", handle=report["handle"])["content"]
    assert "photo.JPG\tImages/photo.JPG\n" in every_move
    assert every_move.count("\n") == 8


def test_what_somebody_may_still_need_stays_and_the_plan_says_why(downloads: Path, call: Run) -> None:
    fill(downloads, "a.pdf", "film.mkv.part", "big.iso.crdownload", "half.zip", "half.zip.aria2", ".hidden", "id_rsa")
    (downloads / "holiday").mkdir()
    (downloads / "project" / ".git").mkdir(parents=True)
    (downloads / "link.pdf").symlink_to("a.pdf")
    os.mkfifo(downloads / "pipe.pdf")
    report = organize(call)
    assert report["summary"].startswith("1 file ")
    stays = said(report, "Stays")
    for line in (
        "download under way: 4 entries (big.iso.crdownload, film.mkv.part, half.zip, …)",
        "hidden: 1 entry (.hidden)",
        "its name says it holds a secret: 1 entry (id_rsa)",
        "folder: 1 entry (holiday)",
        "project folder: 1 entry (project)",
        "link: 1 entry (link.pdf)",
        "not a regular file: 1 entry (pipe.pdf)",
    ):
        assert line in stays


def test_many_files_of_a_kind_are_split_by_year_and_few_are_not(downloads: Path, call: Run) -> None:
    for number in range(80):
        path = downloads / f"{number}.jpg"
        path.write_text(str(number))
        written = YEAR_2021 if number < 30 else YEAR_2023
        os.utime(path, (written, written))
    fill(downloads, "a.pdf", "b.pdf")
    os.utime(downloads / "a.pdf", (YEAR_2021, YEAR_2021))
    report = organize(call, apply=True)
    assert "by year 2021 to 2023" in said(report, "Moved")
    assert len(list((downloads / "Images/2021").iterdir())) == 30
    assert len(list((downloads / "Images/2023").iterdir())) == 50
    assert sorted(path.name for path in (downloads / "Documents").iterdir()) == ["a.pdf", "b.pdf"]


def test_a_tidy_folder_is_left_alone(downloads: Path, call: Run) -> None:
    (downloads / "Images").mkdir()
    for apply in (False, True):
        report = organize(call, apply=apply)
        assert "is tidy" in report["summary"]
        assert "undo_id" not in report
        assert "proposed" not in report


# --- applying and undoing ------------------------------------------------------------------------------------------


def test_five_thousand_files_are_moved_and_brought_back_without_a_byte_lost(downloads: Path, call: Run) -> None:
    endings = ("pdf", "jpg", "png", "mp3", "zip", "deb", "py", "json", "epub", "strange")
    for number in range(5_000):
        path = downloads / f"file {number}.{endings[number % 10]}"
        path.write_bytes(os.urandom(40))
        os.utime(path, ns=(0, (YEAR_2021 + number * 20_000) * 10**9 + number))
    before = tree(downloads)
    report = organize(call, apply=True)
    after = tree(downloads)
    assert not [path for path in downloads.iterdir() if path.is_file()]
    assert sorted(after.values()) == sorted(before.values())
    assert len(call("linux_fs_changes")["changes"]) < 100  # one change, not thousands
    (undone,) = {row["redo_id"] for row in call("linux_fs_undo", undo_id=report["undo_id"])["undone"]}
    assert tree(downloads) == before
    assert [path.name for path in downloads.iterdir() if path.is_dir()] == []
    call("linux_fs_undo", undo_id=undone)
    assert tree(downloads) == after


def test_a_name_that_is_taken_gets_a_number_and_nothing_is_overwritten(downloads: Path, call: Run) -> None:
    (downloads / "Documents").mkdir()
    fill(downloads, "a.pdf", "b.tar.gz")
    (downloads / "Documents/a.pdf").write_text("was there first")
    (downloads / "Documents/a (2).pdf").write_text("was there second")
    (downloads / "Archives").mkdir()
    (downloads / "Archives/b.tar.gz").write_text("archived")
    report = organize(call, apply=True)
    assert "a.pdf → Documents/a (3).pdf" in said(report, "Renamed")
    assert (downloads / "Documents/a.pdf").read_text() == "was there first"
    assert (downloads / "Documents/a (3).pdf").read_text() == "content of a.pdf"
    assert (downloads / "Archives/b (2).tar.gz").read_text() == "content of b.tar.gz"
    call("linux_fs_undo", undo_id=report["undo_id"])
    assert (downloads / "a.pdf").read_text() == "content of a.pdf"
    assert (downloads / "Documents/a (2).pdf").read_text() == "was there second"  # and the folder was not ours


def test_a_folders_name_that_is_taken_by_a_file_or_a_link_is_not_used(workspace: Workspace, call: Run) -> None:
    downloads = workspace.root / "Downloads"
    downloads.mkdir()
    fill(downloads, "a.jpg", "Images", "b.pdf")
    (downloads / "Documents").symlink_to(workspace.outside)
    organize(call, apply=True)
    assert (downloads / "Images-2/a.jpg").exists()
    assert (downloads / "Documents-2/b.pdf").exists()
    assert [path.name for path in workspace.outside.iterdir()] == ["secret.txt"]


def test_names_of_any_bytes_and_any_length_are_moved(downloads: Path, call: Run) -> None:
    long = b"x" * 251 + b".pdf"
    names = [b"caf\xe9.pdf", b"new\nline.pdf", b"back\\x41slash.pdf", "ünï.pdf".encode(), long]
    for name in names:
        Path(os.fsdecode(os.path.join(os.fsencode(downloads), name))).write_bytes(name)
    (downloads / "Documents").mkdir()
    Path(os.fsdecode(os.path.join(os.fsencode(downloads / "Documents"), long))).write_text("taken")
    before = tree(downloads)
    report = organize(call, apply=True)
    inside = os.listdir(os.fsencode(downloads / "Documents"))
    assert set(names) < set(inside)
    assert b"x" * 247 + b" (2).pdf" in inside
    call("linux_fs_undo", undo_id=report["undo_id"])
    assert tree(downloads) == before


def test_a_file_that_vanished_since_the_plan_is_simply_not_moved(downloads: Path, call: Run) -> None:
    fill(downloads, "a.pdf", "b.pdf")
    assert organize(call)["summary"].startswith("2 files")
    (downloads / "a.pdf").unlink()
    report = organize(call, apply=True)
    assert report["summary"].startswith("1 file ")
    assert (downloads / "Documents/b.pdf").exists()


@pytest.mark.parametrize("trouble", ["vanishes", "grows", "is taken"])
def test_what_changes_while_files_are_being_moved_is_noticed(
    workspace: Workspace, downloads: Path, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder changes between the plan and the first move: the plan is made anew, all of it or nothing happens."""
    from llmc_mcp.changes.steps import Sort

    fill(downloads, "a.pdf", "b.pdf", "c.pdf")
    publish, times = Sort.publish, iter((True,))

    def disturbed(step: Sort) -> None:
        if next(times, False):
            if trouble == "vanishes":
                (downloads / "c.pdf").unlink()
            elif trouble == "grows":
                (downloads / "c.pdf").write_text("more")
            else:
                (downloads / "Documents/c.pdf").write_text("somebody else's")
        publish(step)

    monkeypatch.setattr(Sort, "publish", disturbed)
    with gate_on(workspace.root) as gate:
        sent(gate, TOOL, flow_name="organize_downloads", apply=True)
        assert [path.name for path in downloads.iterdir()] == ["Documents"]
        # What was begun in vain is not among what was done. One that was written meanwhile is not what was planned.
        sent(gate, "linux_fs_undo", force=trouble == "grows")
        assert {"a.pdf", "b.pdf"} <= {path.name for path in downloads.iterdir()}
        sent(gate, "linux_fs_undo", undo_id=gate.app.changes.journal.history(None, None, 1)[0].id)
    found = {path.name: path.read_text() for path in (downloads / "Documents").iterdir()}
    expected = {"a.pdf": "content of a.pdf", "b.pdf": "content of b.pdf"}
    if trouble == "grows":
        expected["c.pdf"] = "more"
    elif trouble == "is taken":
        expected |= {"c.pdf": "somebody else's", "c (2).pdf": "content of c.pdf"}
    assert found == expected
    assert [path.name for path in downloads.iterdir()] == ["Documents"]


def test_undo_says_what_was_touched_since_and_force_brings_back_the_rest(workspace: Workspace, downloads: Path) -> None:
    fill(downloads, "a.pdf", "b.pdf", "c.pdf")
    with gate_on(workspace.root) as gate:
        done = json.loads(sent(gate, TOOL, flow_name="organize_downloads", apply=True).partition("\n")[0])
        (downloads / "Documents/a.pdf").write_text("edited since")
        (downloads / "Documents/b.pdf").unlink()
        (downloads / "c.pdf").write_text("a new one")
        with pytest.raises(Stale):
            sent(gate, "linux_fs_undo", undo_id=done["undo_id"])
        assert (downloads / "Documents/c.pdf").exists()
        sent(gate, "linux_fs_undo", undo_id=done["undo_id"], force=True)
        assert (downloads / "a.pdf").read_text() == "edited since"
        assert (downloads / "c.pdf").read_text() == "content of c.pdf"
        assert not (downloads / "Documents").exists()
        trashed = {os.path.basename(row[2]) for row in gate.app.changes.journal.trashed()}
        assert "c.pdf" in trashed  # the new one


def test_while_files_are_sorted_nobody_else_changes_them(workspace: Workspace, downloads: Path) -> None:
    from llmc_mcp.store.leases import CRIT_CODE, LeaseKey

    fill(downloads, "a.pdf")
    config = Config()
    config.limits.lease_wait_sec = 0.01
    with gate_on(workspace.root, config) as gate:
        held = gate.app.changes.leases.held(
            CRIT_CODE, [LeaseKey(f"code:{downloads}/a.pdf")], context(gate).session, wait_s=1, check=lambda: None
        )
        with held, pytest.raises(Exception, match=r"code:.*a\.pdf is held by"):
            sent(gate, TOOL, flow_name="organize_downloads", apply=True)
    assert (downloads / "a.pdf").exists()


# --- which folder --------------------------------------------------------------------------------------------------


def test_the_folder_is_the_named_one_or_one_for_downloads(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.file("inbox/a.pdf", "x")
    monkeypatch.setenv("HOME", str(workspace.outside))
    with gate_on(workspace.root) as gate:
        with pytest.raises(NotFound, match="no folder Downloads") as missing:
            sent(gate, TOOL, flow_name="organize_downloads")
        assert "path=" in str(missing.value.hint)
        assert "inbox" in sent(gate, TOOL, flow_name="organize_downloads", path="inbox")
        for path, error in (("nowhere", NotFound), ("/etc", InvalidPath), ("inbox/a.pdf", NotADirectory)):
            with pytest.raises(error):
                sent(gate, TOOL, flow_name="organize_downloads", path=path, apply=True)
    monkeypatch.setenv("HOME", str(workspace.root / "home"))
    workspace.file("home/Downloads/b.pdf", "x")
    with gate_on(workspace.root) as gate:
        assert "home/Downloads" in sent(gate, TOOL, flow_name="organize_downloads")
    with gate_on(workspace.root / "home/Downloads") as gate:  # the root itself
        assert sent(gate, TOOL, flow_name="organize_downloads").count("1 loose file") == 1


def test_a_desktop_may_call_the_folder_in_its_own_language(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = workspace.root / "home"
    settings = workspace.file("home/.config/user-dirs.dirs", 'XDG_DOWNLOAD_DIR="$HOME/Téléchargements"\n')
    workspace.file("home/Téléchargements/a.pdf", "x")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    with gate_on(workspace.root) as gate:
        assert "home/Téléchargements: 1 loose file" in sent(gate, TOOL, flow_name="organize_downloads")
        settings.write_text(f'XDG_DOWNLOAD_DIR="{workspace.outside}"\n')  # a wish, not a way out
        with pytest.raises(NotFound):
            sent(gate, TOOL, flow_name="organize_downloads")
    for text in ("", "XDG_DOWNLOAD_DIR=", 'XDG_DOWNLOAD_DIR="relative"', "\0" * 100):
        settings.write_text(text)
        assert downloads_folder() == str(home / "Downloads")


def test_a_project_and_a_home_folder_are_not_tidied(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.file("app/pyproject.toml", "")
    workspace.file("app/notes.pdf", "")
    workspace.file("home/config.json", "")
    monkeypatch.setenv("HOME", str(workspace.root / "home"))
    with gate_on(workspace.root) as gate:
        for path in ("app", "home"):
            with pytest.raises(InvalidArgument):
                sent(gate, TOOL, flow_name="organize_downloads", path=path, apply=True)
    assert (workspace.root / "app/notes.pdf").exists()


# --- explain_repo --------------------------------------------------------------------------------------------------


def explain(call: Run, **more: object) -> dict[str, Any]:
    return call(TOOL, flow_name="explain_repo", **more)


def test_a_python_project_is_explained_from_what_its_files_say(workspace: Workspace, call: Run) -> None:
    workspace.file(
        "pyproject.toml",
        '[project]\nname="shop"\ndescription="Sells things."\n'
        'requires-python=">=3.11"\ndependencies=["a","b"]\n[project.scripts]\nshop="shop.cli:main"\n[tool.pytest]\n',
    )
    workspace.file("Makefile", "run: x\n\techo\ntest:\n\tpytest\nVAR := 1\n")
    workspace.file("src/shop/__main__.py", "")
    workspace.file("src/shop/cli.py", "def main(): ...")
    workspace.file("tests/test_cli.py", "")
    workspace.file("vendor/other/lib.js", "")
    workspace.file("AGENTS.md", "be kind")
    workspace.file("Dockerfile", "FROM x\nCMD ['shop']\n")
    report = explain(call)
    assert report["summary"] == "shop: Sells things."
    assert said(report, "Size") == "8 files: Python 3, JavaScript 1"
    assert "src/ 2 files, mostly Python" in said(report, "Layout")
    entries = said(report, "Entry points")
    assert all(entry in entries for entry in ("shop → shop.cli:main", "python -m shop", "CMD ['shop']"))
    assert said(report, "Needs") == "Python >=3.11, 2 Python packages"
    assert "make run" in said(report, "Run it")
    assert said(report, "Test it") == "\n- make test\n- python -m pytest"
    unusual = said(report, "Unusual")
    assert all(line in unusual for line in ("no README", "third-party files in vendor/", "no CI", "no license"))
    assert said(report, "Read first") == "AGENTS.md"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"package.json": '{"name":"web","bin":"cli.js","scripts":{"start":"x","test":"vitest"}}', "yarn.lock": ""},
         ("web", "yarn run start", "yarn test (vitest)", "web → cli.js")),
        ({"Cargo.toml": '[package]\nname="rusty"\n', "src/main.rs": ""}, ("rusty", "cargo run", "cargo test")),
        ({"go.mod": "module example.org/tool\n", "cmd/tool/main.go": "", "x_test.go": ""},
         ("example.org/tool", "go run ./cmd/tool", "go test ./...")),
        ({"manage.py": "", "README.md": "# T\n\n[![badge](x)]\n\nThis sells flowers to people who like flowers.\n"},
         ("sells flowers", "python manage.py runserver", "python manage.py test")),
        ({"tests/runtests.py": "", "a/tests.py": ""}, ("cd tests && python runtests.py", "runner of their own")),
        ({"package.json": "{broken", "pyproject.toml": "also [broken", "a.py": ""}, ("its files don't say",)),
        ({}, ("0 files",)),
    ],
)  # fmt: skip
def test_each_kind_of_project_is_run_and_tested_its_own_way(
    workspace: Workspace, call: Run, files: dict[str, str], expected: tuple[str, ...]
) -> None:
    for name, text in files.items():
        workspace.file(name, text)
    told = json.dumps(explain(call), ensure_ascii=False)
    assert [words for words in expected if words not in told] == []


def test_a_report_on_a_repository_is_short_whatever_is_in_it(workspace: Workspace, call: Run) -> None:
    long = "word " * 400
    scripts = "\n".join(f'command{number}="a.b:{"c" * 90}"' for number in range(60))
    workspace.file("pyproject.toml", f'[project]\nname="n"\ndescription="{long}"\n[project.scripts]\n{scripts}')
    for number in range(60):
        workspace.file(f"folder{number}{'x' * 60}/__main__.py", "")
        workspace.file(f"folder{number}{'x' * 60}/package.json", "{}")
    report = explain(call)
    assert estimate(json.dumps(report)) <= 1_000
    told = "\n".join([report["summary"], *(step["description"] + step["result"] for step in report["steps"])])
    assert estimate(told) <= 800


def test_what_the_file_tools_do_not_read_is_not_explained_either(workspace: Workspace, call: Run) -> None:
    (workspace.root / "README.md").symlink_to(workspace.outside / "secret.txt")
    (workspace.root / "pyproject.toml").symlink_to(workspace.outside / "secret.txt")
    assert "SECRET" not in json.dumps(explain(call))
    with gate_on(workspace.root) as gate, pytest.raises(InvalidPath):
        sent(gate, TOOL, flow_name="explain_repo", path=str(workspace.outside))


# --- system_health -------------------------------------------------------------------------------------------------

CALM = Snapshot(3.0, (0.1, 0.1, 0.1), 1_000, 8_000, [Disk("/", 40.0)])


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[tuple[HealthCheck, Path]]:
    with gate_on(tmp_path) as gate:
        at = tmp_path / "machine"
        at.mkdir()
        system = SystemInfo(gate.app.launcher, str(at))
        yield HealthCheck(system, Processes(visible_from(Config())), str(at)), at


def found(health: HealthCheck, state: Snapshot) -> list[tuple[str, str]]:
    return [(one.severity, one.what) for one in health.findings(state, lambda: None)]


def test_a_full_disk_and_a_high_load_are_found_with_their_reasons(machine: tuple[HealthCheck, Path]) -> None:
    health, _ = machine
    cores = len(os.sched_getaffinity(0))
    full = CALM._replace(disks=[Disk("/", 98.0)], load_avg=(9.0 * cores, 9.0 * cores, 1.0), cpu_percent=10.0)
    findings = health.findings(full, lambda: None)
    assert [one.severity for one in findings][:2] == ["critical", "warning"]
    assert "98 % full" in findings[0].what
    waiting = next(one for one in findings if one.what.startswith("load"))
    assert "only 10 % busy" in waiting.why
    busy = [one for one in health.findings(full._replace(cpu_percent=100.0), lambda: None) if "load" in one.what]
    assert busy[0].why == "everything takes longer than usual"
    short = CALM._replace(load_avg=(1.9 * cores, 0.5 * cores, 0.1), cpu_percent=100.0)
    assert [severity for severity, what in found(health, short) if what.startswith("load")] == ["note"]
    assert not [what for _, what in found(health, CALM) if what.startswith(("load", "/"))]


def test_kills_for_memory_and_time_lost_to_waiting_are_found(machine: tuple[HealthCheck, Path]) -> None:
    health, at = machine
    quiet = found(health, CALM)
    (at / "proc/pressure").mkdir(parents=True)
    (at / "proc/vmstat").write_text("nr_free 1\noom_kill 3\n")
    (at / "proc/pressure/io").write_text("some avg10=1.00 avg60=41.50 avg300=2.00 total=9\nfull avg60=0.00\n")
    (at / "proc/pressure/memory").write_text("some avg10=0.00 avg60=0.30 avg300=0.00 total=9\n")
    told = [what for severity, what in found(health, CALM) if (severity, what) not in quiet]
    assert any("killed 3 processes" in what for what in told)
    assert any("waited for the disk 42 %" in what for what in told)
    assert not any("for memory" in what for what in told)


def test_a_zombie_is_found_with_the_parent_that_left_it(machine: tuple[HealthCheck, Path]) -> None:
    health, _ = machine
    script = "import os,sys\nif os.fork():\n print(1,flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        parent.stdout.readline()
        while not any(pid == parent.pid for pid, _ in Processes(visible_from(Config())).zombies()):
            pass  # its child is ending
        assert any("zombie" in what for _, what in found(health, CALM))
        parent.communicate()


def test_failed_units_are_named_where_there_is_a_systemd(machine: tuple[HealthCheck, Path]) -> None:
    health, at = machine
    assert not any("unit" in what for _, what in found(health, CALM))
    (at / "run/systemd/system").mkdir(parents=True)
    (at / "usr/bin").mkdir(parents=True)
    program = at / "usr/bin/systemctl"
    program.write_text("#!/bin/sh\necho 'backup.service loaded failed failed Backup'\n")
    program.chmod(0o755)
    assert ("warning", "1 failed unit: backup.service") in found(health, CALM)
    program.write_text("#!/bin/sh\nexit 1\n")
    assert not any("unit" in what for _, what in found(health, CALM))


def test_the_report_on_the_machine_is_for_a_person(call: Run) -> None:
    report = call(TOOL, flow_name="system_health")
    assert said(report, "Now").startswith("CPU ")
    assert "/ " in said(report, "Disks")
    assert "out of the ordinary" in report["summary"]
    assert "proposed" not in report


# --- which flows ---------------------------------------------------------------------------------------------------


def test_a_flow_that_does_not_exist_lists_those_that_do(workspace: Workspace) -> None:
    with gate_on(workspace.root) as gate:
        with pytest.raises(InvalidArgument) as wrong:
            sent(gate, TOOL, flow_name="explain_everything")
        assert wrong.value.hint == "Flows: organize_downloads, explain_repo, system_health."
        with pytest.raises(InvalidArgument, match="takes no path"):
            sent(gate, TOOL, flow_name="system_health", path=".")


def test_a_flow_goes_with_the_feature_it_uses(workspace: Workspace) -> None:
    config = Config()
    config.linux_ops.features.system_enabled = False
    with gate_on(workspace.root, config) as gate:
        with pytest.raises(FeatureDisabled, match="system_health"):
            sent(gate, TOOL, flow_name="system_health")
        assert "files" in sent(gate, TOOL, flow_name="explain_repo")


def test_the_page_shows_what_the_first_flow_really_says() -> None:
    assert onboarding_page.organize_part() in onboarding_page.PAGE.read_text(), "python -m scripts.onboarding_page"


# --- for a person --------------------------------------------------------------------------------------------------


def onboard(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [os.path.join(os.path.dirname(sys.executable), "llmc"), "onboard", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_a_person_plans_applies_and_undoes_by_command(workspace: Workspace, downloads: Path) -> None:
    fill(downloads, "a.pdf")
    plan = onboard("organize_downloads", str(downloads), cwd=workspace.root)
    assert plan.returncode == 0, plan.stderr
    assert "Nothing was changed" in plan.stdout
    assert plan.stdout.endswith(f"To do it: llmc onboard organize_downloads {downloads} --apply\n")
    done = onboard("organize_downloads", str(downloads), "--apply", "--json", cwd=workspace.root)
    undo_id = json.loads(done.stdout)["undo_id"]
    assert (downloads / "Documents/a.pdf").exists()
    undo = [os.path.join(os.path.dirname(sys.executable), "llmc"), "undo", undo_id]
    subprocess.run(undo, check=True, capture_output=True, cwd=workspace.root)
    assert [path.name for path in downloads.iterdir()] == ["a.pdf"]


def test_a_person_is_told_what_there_is_when_he_asks_for_something_else(workspace: Workspace) -> None:
    wrong = onboard("nothing", cwd=workspace.root)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "organize_downloads, explain_repo, system_health" in wrong.stderr
    assert onboard("explain_repo", "/nowhere", cwd=workspace.root).returncode == 2
    assert onboard(cwd=workspace.root).returncode == 2
    assert "3 files" not in onboard("explain_repo", cwd=workspace.root).stdout
