"""`python -m benchmarks.policy [--runs DIR]`: what 200 rules cost a call, and how many recorded commands ask a person.

Prints Markdown; nothing is asserted. Costs are CPU time of one thread, so that a busy machine does not count.
"""

import argparse
import gzip
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from llmc_mcp.app import App
from llmc_mcp.commands.shell_child import names_in
from llmc_mcp.config.schema import Config, PolicyRule
from llmc_mcp.gate.subjects import subjects_of
from llmc_mcp.permissions.rules import CallShape, RuleTable, Subject
from llmc_mcp.tool import registered
from llmc_mcp.tools.command_risks import is_sweeping
from llmc_mcp.tools.linux_ops import fs

from . import report

_RULES = 200
_BAR_US = 20
_BAR_SHARE = 0.01
_ROUNDS = 20_000
_ROOT = "/project"


def _tables() -> dict[str, tuple[list[PolicyRule], Subject]]:
    file = Subject(f"{_ROOT}/src/app/models/user.py")
    shapes = ("src/pkg{}/**", "docs/part{}/*.md", "**/gen{}/*.py", "*.x{}")
    paths = [PolicyRule("deny", path=shapes[number % 4].format(number)) for number in range(_RULES)]
    names = [PolicyRule("deny", path=f"*.x{number}") for number in range(_RULES)]
    programs = [PolicyRule("deny", program=f"program{number}") for number in range(_RULES)]
    tools = [PolicyRule("deny", tool=f"tool_{number}") for number in range(_RULES)]
    return {
        "paths of four kinds": (paths, file),
        "names at any depth": (names, file),
        "programs": (programs, Subject(program="git")),
        "tools": (tools, file),
    }


def _microseconds(action: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(5):
        start = time.thread_time()
        for _ in range(_ROUNDS // 5):
            action()
        best = min(best, (time.thread_time() - start) / (_ROUNDS // 5) * 1e6)
    return best


def cost() -> str:
    """A table of what a judgement takes that no rule cuts short."""
    shape = CallShape(("linux_fs_read",), "uid:0", False)
    rows: list[list[str]] = []
    for name, (rules, subject) in _tables().items():
        table = RuleTable(rules, (), [_ROOT])
        taken = _microseconds(lambda table=table, subject=subject: table.decide(shape, (subject,)))
        rows.append([f"{_RULES} rules: {name}", report.number(taken), str(_BAR_US), report.verdict(taken, _BAR_US)])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.txt").write_text("x")
        app = App(Config(), [folder], os.path.join(folder, ".data"))
        tool = registered[fs.read_file.__name__]
        taken = _microseconds(lambda: subjects_of(app, tool, {"path": "a.txt"}, frozenset({"path"})))
        rows.append(["resolving the path of a call", report.number(taken), "", ""])
        app.close()
    return report.table(["a call's judgement", "µs", "bar", ""], rows)


def asking(runs: Path) -> str:
    """How many of the recorded commands would ask, by risk."""
    asked: Counter[str] = Counter()
    total = 0
    with gzip.open(runs / "runs.jsonl.gz", "rt") as lines:
        for line in lines:
            for step in json.loads(line)["steps"]:
                total += 1
                names = names_in(step["command"].encode("utf-8", "replace"))
                start = None if names.changes_folder else _ROOT
                asked["push"] += names.pushes
                asked["recursive_delete"] += any(is_sweeping(target, start, [_ROOT]) for target in names.deletes)
    rows = [[risk, str(count), f"{count / total:.3%}", "", ""] for risk, count in asked.items()]
    share = sum(asked.values()) / total
    verdict = report.verdict(share, _BAR_SHARE)
    rows.append(["all", str(sum(asked.values())), f"{share:.3%}", f"{_BAR_SHARE:.0%}", verdict])
    return report.table([f"of {total:,} recorded commands", "ask", "share", "bar", ""], rows)


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy", description=__doc__)
    parser.add_argument("--runs", type=Path, help="a folder with runs.jsonl.gz: id, steps with command")
    given = parser.parse_args()
    print(cost())
    if given.runs:
        print(f"\n{asking(given.runs)}")
    print(f"\nLoad average: {os.getloadavg()[0]:.1f}. {report.provenance()}")


if __name__ == "__main__":
    main()
