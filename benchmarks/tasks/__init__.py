"""The same work through each server over stdio, as an agent would do it: calls, tokens, time and CPU, side by side.

Every reply is checked to hold the answer, and every change to be really there, so that fewer tokens never mean less.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from .. import procfs, report, tokens
from ..client import Client
from ..servers import Server, desktop_commander, filesystem, llmc
from . import ours, theirs
from .catalog import TASKS, Scene, Task
from .chart import write_charts
from .talk import Cost, Talk
from .workspace import Workspace

_THINKING = 0.05  # seconds between tasks: what a server does in the background is not charged to the next one


@dataclass
class Taken:
    """One server's figures for one task: a cost per round, and CPU over all rounds."""

    costs: list[Cost] = field(default_factory=list[Cost])
    cpu: float = 0
    unanswered: int = 0

    @property
    def median(self) -> float:
        return report.median([cost.milliseconds for cost in self.costs])

    @property
    def p95(self) -> float:
        return report.percentile([cost.milliseconds for cost in self.costs], 0.95)

    @property
    def cpu_ms(self) -> float:
        return self.cpu / len(self.costs)

    @property
    def asked(self) -> int:
        return max(cost.asked for cost in self.costs)

    @property
    def answered(self) -> int:
        """Of the longest round: what an agent must be ready to pay."""
        return max(cost.answered for cost in self.costs)

    @property
    def calls(self) -> int:
        return max(cost.calls for cost in self.costs)


@dataclass
class Contestant:
    """A server, how an agent uses it, and what that cost."""

    name: str
    server: Server
    steps: Mapping[str, ours.Steps]
    listed: int = 0
    taken: dict[str, Taken] = field(default_factory=dict[str, Taken])


def run(work: Path, quick: bool) -> str:
    scene = Scene(Workspace(work / "root"))
    contestants = _contestants(scene.workspace.root, work)
    _measure(contestants, scene, rounds=3 if quick else 7)
    write_charts(contestants)
    return _report(contestants)


def _contestants(root: Path, homes: Path) -> list[Contestant]:
    return [
        Contestant("llmc", llmc(root, homes), ours.HYBRID),
        Contestant("llmc classic", llmc(root, homes, "classic"), ours.CLASSIC),
        Contestant("filesystem", filesystem(root, homes), theirs.FILESYSTEM),
        Contestant("Desktop Commander", desktop_commander(root, homes), theirs.DESKTOP_COMMANDER),
    ]


def _measure(contestants: Iterable[Contestant], scene: Scene, rounds: int) -> None:
    """Task by task in turns, so that a busy moment of the machine hits all alike; the first round warms up."""
    with ExitStack() as stack:
        stack.callback(scene.close)
        clients: list[tuple[Contestant, Client]] = []
        for one in contestants:
            client = stack.enter_context(one.server.start(scene.workspace.root))
            client.initialize()
            one.listed = tokens.count_tools(client.list_tools())
            if one.name.startswith("llmc"):
                ours.build_index(client)
            clients.append((one, client))
        for turn in range(rounds + 1):
            for task in TASKS:
                for one, client in clients:
                    if task.name in one.steps:
                        _once(one, client, task, scene, counts=turn > 0)


def _once(one: Contestant, client: Client, task: Task, scene: Scene, counts: bool) -> None:
    task.prepare(scene)
    talk = Talk(client)
    before = procfs.cpu_ms(client.pid)
    one.steps[task.name](talk, scene)
    time.sleep(_THINKING)
    spent = procfs.cpu_ms(client.pid) - before
    answered = task.holds(scene, "\n".join(talk.replies))
    scene.close()
    if not answered:
        print(f"{one.name}, {task.name}: no answer in {str(talk.replies)[:600]}", file=sys.stderr)
    if counts:
        taken = one.taken.setdefault(task.name, Taken())
        taken.costs.append(talk.cost)
        taken.cpu += spent
        taken.unanswered += not answered


# --- the tables ----------------------------------------------------------------------------------------------------


def _report(contestants: list[Contestant]) -> str:
    versions = [f"{one.name} {one.server.version}" for one in contestants if one.server.version]
    parts = [
        "Tokens of the replies (in brackets the calls):\n\n" + _table(contestants, _tokens_cell),
        "Median milliseconds (p95):\n\n" + _table(contestants, _time_cell),
        "Milliseconds of CPU, all processes of the server:\n\n" + _table(contestants, _cpu_cell),
        "Sums and bars:\n\n" + _bars(contestants),
        report.provenance(*versions, "Django==5.2"),
    ]
    return "\n\n".join(parts)


def _table(contestants: list[Contestant], cell: Callable[[Taken], str]) -> str:
    head = ["task", *[one.name for one in contestants]]
    rows = [
        [task.name, *[cell(one.taken[task.name]) if task.name in one.taken else "" for one in contestants]]
        for task in TASKS
    ]
    return report.table(head, rows)


def _tokens_cell(taken: Taken) -> str:
    missing = " no answer" if taken.unanswered else ""
    return f"{taken.answered:,} ({taken.calls}){missing}"


def _time_cell(taken: Taken) -> str:
    return f"{report.number(taken.median)} ({report.number(taken.p95)})"


def _cpu_cell(taken: Taken) -> str:
    return report.number(taken.cpu_ms)


def _bars(contestants: list[Contestant]) -> str:
    """What we promise beside each peer."""
    us, _, fs, dc = contestants
    rows = [["tool list, tokens", *[f"{one.listed:,}" for one in contestants], "", ""]]
    for name, flood, bar in (("replies without the floods", False, 0.30), ("replies, all tasks", True, 0.06)):
        sums = [_sum(one, dc, flood) for one in contestants]
        ratio = sums[0] / sums[3]
        rows.append(
            [
                f"{name}, tokens",
                *[f"{value:,}" for value in sums],
                f"{ratio:.1%} of {bar:.0%}",
                report.verdict(ratio, bar),
            ]
        )
    rows.append(_worst("slowest against Desktop Commander", us, dc, lambda taken: taken.median))
    rows.append(_worst("most CPU against Desktop Commander", us, dc, lambda taken: taken.cpu_ms))
    rows.append(_worst("slowest against filesystem", us, fs, lambda taken: taken.median))
    rows.append(_worst("most CPU against filesystem", us, fs, lambda taken: taken.cpu_ms))
    return report.table(["", *[one.name for one in contestants], "ratio", ""], rows)


def _sum(one: Contestant, beside: Contestant, flood: bool) -> int:
    """Over the tasks that both can do."""
    return sum(
        one.taken[task.name].answered
        for task in TASKS
        if (flood or not task.flood) and task.name in one.taken and task.name in beside.taken
    )


def _worst(name: str, us: Contestant, peer: Contestant, value: Callable[[Taken], float]) -> list[str]:
    """The task on which we compare worst; at most 1 is the bar."""
    shared = [task for task in TASKS if task.name in us.taken and task.name in peer.taken]
    ratios = {task.name: value(us.taken[task.name]) / max(value(peer.taken[task.name]), 0.01) for task in shared}
    worst = max(ratios, key=lambda task: ratios[task])
    lost = sum(ratio > 1 for ratio in ratios.values())
    text = f"{ratios[worst]:.2f}x ({worst}); {lost} of {len(ratios)} above 1"
    return [name, "", "", "", "", text, report.verdict(ratios[worst], 1)]
