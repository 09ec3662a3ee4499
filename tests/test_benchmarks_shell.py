"""The benchmark of recorded commands: that it sees what differs, and only that."""

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.shell.compare import Outcome, difference
from benchmarks.shell.copies import Checkout, Copy, Effect, duplicate
from benchmarks.shell.recorded import Drawn, draw, read_runs
from benchmarks.shell.scene import Compared, Settings, batches, compare_runs

from .support.workspace import require


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "checkouts" / "owner__name"
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "pkg").mkdir()
    (folder / "pkg" / "a.py").write_text("one = 1\ntwo = 2\n")
    (folder / "read.me").write_text("hello\n")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "first")
    return folder


def drawn(repository: Path, tmp_path: Path, *commands: str) -> Drawn:
    """A recorded run in which every command is in the sample."""
    row = {"id": "owner__name-1", "steps": [{"command": command, "exit": 0, "output": ""} for command in commands]}
    (tmp_path / "runs.jsonl.gz").write_bytes(gzip.compress(json.dumps(row).encode()))
    commit = {"id": "owner__name-1", "base_commit": git(repository, "rev-parse", "HEAD")}
    (tmp_path / "commits.jsonl").write_text(json.dumps(commit))
    (one,) = draw(read_runs(tmp_path, tmp_path / "commits.jsonl"), len(commands), seed=0)
    return one


def compared(repository: Path, tmp_path: Path, *commands: str) -> list[Compared]:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    settings = Settings(repository.parent, (), 20.0)
    ((_, seen),) = compare_runs([drawn(repository, tmp_path, *commands)], settings)
    return seen


def test_commands_of_a_run_see_what_the_ones_before_left_in_the_files(repository: Path, tmp_path: Path) -> None:
    seen = compared(
        repository,
        tmp_path,
        "cat > new.py <<'EOF'\nprint('made before')\nEOF",
        "cd /testbed && python3 new.py | grep -c made && git status --short",
        "sed -i 's/two/three/' pkg/a.py; rm read.me; ls -la",
        "git diff --stat; test -e read.me",
    )
    assert [one.difference for one in seen] == [""] * 4
    assert [one.family for one in seen] == ["cat", "python3", "sed", "git"]
    assert [one.left_out for one in seen] == [0, 0, 1, 1], "python3 may have changed files and was not done first"


def test_runs_on_other_commits_share_their_copies_and_nothing_else(repository: Path, tmp_path: Path) -> None:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    first = drawn(
        repository, tmp_path, "rm -r pkg; echo mine > read.me; echo x > new; git add -A; git stash; mkdir d", "ls"
    )
    (repository / "later.py").write_text("later = 1\n")
    git(repository, "add", ".")
    git(repository, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "second")
    look = "cat read.me pkg/a.py later.py; git status --short --ignored; git log --oneline; git stash list; ls -A"
    second = drawn(repository, tmp_path, look)
    second = second._replace(run=second.run._replace(name="owner__name-2"))
    lost = first._replace(run=first.run._replace(name="owner__name-3", commit="0" * 40))
    settings = Settings(repository.parent, (), 20.0)
    (part,) = batches([first, lost, second])
    scene_of = dict(compare_runs(part, settings))
    assert list(scene_of) == [first.run.name, second.run.name], "the third has no checkout"
    assert dict(compare_runs([lost], settings)) == {}
    assert [one.difference for seen in scene_of.values() for one in seen] == [""] * 3
    checkout = Checkout(repository, [first.run.commit, second.run.commit], tmp_path / "work")
    checkout.go_to(first.run.commit)
    subprocess.run(first.run.commands[0], shell=True, cwd=tmp_path / "work", check=True)
    checkout.go_to(second.run.commit)
    said = subprocess.run(look, shell=True, cwd=tmp_path / "work", check=True, capture_output=True, text=True).stdout
    assert said.splitlines()[:4] == ["hello", "one = 1", "two = 2", "later = 1"]
    assert said.splitlines()[4:] == [git(repository, "log", "-1", "--oneline"), ".git", "later.py", "pkg", "read.me"]


def test_what_our_sandbox_does_otherwise_is_reported(repository: Path, tmp_path: Path) -> None:
    outside = "/etc/fstab"  # readable for anybody, but nothing that a program in a sandbox needs
    require(Path(outside).is_file(), outside)
    seen = compared(repository, tmp_path, f"cat {outside}", f"cat {outside} > got || true", "curl --version", "pwd")
    assert seen[0].difference.startswith("exit: success (0) in bash, failure (1) here")
    assert seen[1].difference.startswith("stderr: ")
    assert seen[2].difference.startswith("refused (COMMAND_NOT_ALLOWED")
    assert not seen[3].difference


def test_plain_bash_can_change_nothing_but_its_copy(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("before\n")
    (one,) = compared(repository, tmp_path, f"echo after > {outside} || echo after > {repository}/read.me || echo kept")
    assert outside.read_text() == "before\n"
    assert (repository / "read.me").read_text() == "hello\n"
    assert one.family == "(shell alone)"


def test_a_command_that_differs_from_itself_is_not_held_against_us(repository: Path, tmp_path: Path) -> None:
    (one,) = compared(repository, tmp_path, "head -c 30 /dev/urandom | base64")
    assert not one.difference
    assert one.unsteady.startswith("stdout: line 1")


def test_a_copy_is_as_before_whatever_a_command_did_to_it(repository: Path, tmp_path: Path) -> None:
    before = Copy(repository)
    copy = duplicate(before, tmp_path / "copy")
    (copy.path / "pkg" / "a.py").unlink()
    (copy.path / "pkg").rmdir()
    (copy.path / "pkg").write_text("a file now\n")
    (copy.path / "read.me").unlink()
    (copy.path / "read.me").mkdir()
    (copy.path / "read.me" / "deep").symlink_to("nowhere")
    changed = copy.changed()
    effects = copy.effects(changed, before)
    assert set(effects) == {"pkg", "pkg/a.py", "read.me", "read.me/deep"}
    assert effects["pkg/a.py"] == Effect()
    copy.take(before, changed)
    assert copy.effects(changed, before) == {}
    assert (copy.path / "pkg" / "a.py").stat().st_mtime_ns == (repository / "pkg" / "a.py").stat().st_mtime_ns
    assert (copy.path / "pkg").stat().st_mtime_ns == (repository / "pkg").stat().st_mtime_ns
    assert copy.changed() == []


def test_times_addresses_and_an_order_that_nobody_promised_are_alike() -> None:
    def differ(plain: str, ours: str, *, unordered: bool = False) -> str:
        return difference(Outcome(0, plain, "", {}), Outcome(0, ours, "", {}), unordered)

    assert not differ(
        "Ran 3 tests in 0.004s\n<X object at 0x7f00aa10>", "Ran 3 tests in 1.1s\n<X object at 0x7fbbaa10>"
    )
    assert not differ("===== 2 passed in 0.10s =====\n", "==== 2 passed in 10.10s ====\n")
    assert not differ("-rw 1 a 5 Nov 16 12:30 f\n", "-rw 1 a 5 Nov 16 12:31 f\n")
    assert differ("Ran 3 tests in 0.004s", "Ran 4 tests in 0.004s")
    assert differ("a\nb\n", "b\na\n")
    assert not differ("a\nb\n", "b\na\n", unordered=True)
    assert "the first more: 'c'" in differ("a\nb\n", "a\nb\nc\n")
    assert difference(Outcome(1, "", "", {}), Outcome(2, "", "", {}), False) == "", "of one class"
    assert difference(Outcome(1, "", "", {}), Outcome(127, "", "", {}), False).startswith("exit: failure (1) in bash")
    gone = {"f": Effect()}
    assert difference(Outcome(0, "", "", gone), Outcome(0, "", "", {}), False) == "files: f"


def test_long_output_is_compared_at_both_ends(repository: Path, tmp_path: Path) -> None:
    seen = compared(repository, tmp_path, "seq 1 100000")
    assert [one.difference for one in seen] == [""]
    kept = "\n".join(map(str, range(1, 100_001)))
    ours = kept[: 32 << 10] + "\n… [500,000 bytes left out] …\n" + kept[-(32 << 10) :]
    same, other = Outcome(0, ours, "", {}), Outcome(0, ours.replace("100000", "100001"), "", {})
    assert not difference(Outcome(0, kept, "", {}), same, False)
    assert difference(Outcome(0, kept, "", {}), other, False)
