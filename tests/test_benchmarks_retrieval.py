"""The benchmark of tasks for code search, on a repository of a few lines."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.retrieval import scale
from benchmarks.retrieval.cases import Task
from benchmarks.retrieval.tasks import Answer, judged
from benchmarks.tokens import count

from .support.workspace import require

CART = (
    "class Cart:\n    def total_price(self):\n        return sum(self.prices)\n\n    def empty(self):\n        pass\n"
)
OTHER = "def greet(name):\n    return f'hello {name}'\n"


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_tasks_are_judged_at_the_commit_that_each_was_written_for(tmp_path: Path) -> None:
    require(subprocess.run(["git", "--version"], capture_output=True, check=False).returncode == 0, "git")
    clone = tmp_path / "clones" / "me+shop"
    clone.mkdir(parents=True)
    git(clone, "init", "-q")
    commits: list[str] = []
    for names in (("cart.py",), ("cart.py", "greet.py")):
        for name in names:
            (clone / name).write_text(CART if name == "cart.py" else OTHER)
        git(clone, "add", ".")
        git(clone, "commit", "-q", "-m", "a")
        commits.append(git(clone, "rev-parse", "HEAD"))
    told = [
        ("a-1", commits[0], "total_price is wrong\n\nThe cart sums prices.", "cart.py", "Cart.total_price"),
        ("a-2", commits[1], "greet says hello\n\nIt should say good day.", "greet.py", "greet"),
    ]
    with gzip.open(tmp_path / "tasks.jsonl.gz", "wt") as file:
        for name, commit, text, path, entity in told:
            change = {"file": path, "changes": {"edited_entities": [f"{path}:{entity}"]}}
            row = {"id": name, "repo": "me/shop", "base_commit": commit, "text": text, "changes": [change]}
            file.write(json.dumps(row) + "\n")
    command = [sys.executable, "-m", "benchmarks.retrieval.tasks", "--tasks", str(tmp_path)]
    command += ["--clones", str(tmp_path / "clones"), "--work", str(tmp_path / "work")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "2 tasks of 1 repositories" in done.stdout
    (row,) = (line for line in done.stdout.splitlines() if line.startswith("| file-level BM25"))
    assert row.split("|")[2].strip().startswith("1.000")


def test_a_task_counts_only_if_every_file_is_among_the_first() -> None:
    task = Task("a", "me/shop", "", "", ("a.py", "b.py"), ())
    row = judged("x", [task], [Answer(["a.py", "c.py", "b.py"], [])])
    assert [cell[:5] for cell in row[1:5]] == ["0.000", "1.000", "1.000", "1.000"]


@pytest.mark.filterwarnings("ignore:open_binary:DeprecationWarning")  # of the encoder
def test_tokens_of_a_text_of_any_length_are_counted() -> None:
    line = "a word and another one\n"
    assert count(line * 100_000) == 100_000 * count(line)


def test_the_size_of_an_index_is_measured_by_a_real_server(tmp_path: Path) -> None:
    source = tmp_path / "sources" / "shop"
    source.mkdir(parents=True)
    for number in range(30):
        (source / f"cart_{number}.py").write_text(CART.replace("total_price", f"total_price_{number}"))
    work = tmp_path / "work"
    work.mkdir()
    seen = scale.large(work, source.parent, 1).rows
    assert (seen["files"], seen["repositories"]) == (30, 1)
    assert 0 < seen["warm p50, ms"] <= seen["warm p95, ms"]
    assert seen["building, MB"] > 0
    assert seen["2,000 changed files searchable, s"] > 0
