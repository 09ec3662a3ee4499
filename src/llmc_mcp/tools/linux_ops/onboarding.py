"""Onboarding: three flows for new users, each of which returns a report.

organize_downloads   plan how to sort a folder; with apply=true sort it, as one change that one undo reverts
explain_repo         describe a repository: purpose, entry points, how to run and test it, what is unusual
system_health        describe the state of the machine, what is out of the ordinary and why that matters
"""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ...app import App
from ...context import Context
from ...errors import FeatureDisabled, FeatureUnavailable, InvalidArgument, ResourceBusy
from ...printing import counted
from ...tool import FILES, Result, Row, tool

if TYPE_CHECKING:
    from ...files.filesystem import Place
    from ...machine.downloads import Group, SortingPlan

_MOST_TOKENS = 800  # of the report of explain_repo
_MAP_HEAD_TOKENS = 60  # for the metadata of the reply and the heading of the map
_MAP_WAIT_S = 0.2  # for bringing the index up to date with the files
_SHOWN_RENAMES = 5
_BULLET = "\n- "


class FlowStep(Row):
    """A step of a flow and its result."""

    description: str
    result: str
    line_format: ClassVar[str] = "{description}: {result}"


class FlowReport(Result):
    """The report of a flow. `proposed`: nothing was changed yet; `handle` lists all moves."""

    flow: str
    steps: list[FlowStep]
    summary: str
    proposed: bool | None = None
    undo_id: str | None = None
    handle: str | None = None
    truncated: bool = False
    body: ClassVar[str] = "steps"


class Argument(NamedTuple):
    """An argument of a flow, for clients that show prompts as forms."""

    name: str
    description: str
    required: bool = False


class Flow(NamedTuple):
    """A flow; `request` is the user's message when it is selected as a prompt."""

    run: Callable[[Context, str | None, bool], FlowReport]
    title: str
    description: str
    request: str
    feature: str
    arguments: tuple[Argument, ...] = ()


@tool(
    "Guided start: organize_downloads (plans until apply), explain_repo, system_health",
    needs=FILES,
    destructive=True,
    whole_trees=True,
)
def linux_mcp_run_onboarding(ctx: Context, flow_name: str, apply: bool = False, path: str | None = None) -> FlowReport:
    flow = FLOWS.get(flow_name)
    if flow is None:
        raise InvalidArgument(f"there is no flow {flow_name[:60]!r}", hint=f"Flows: {', '.join(FLOWS)}.")
    if (setting := switched_off(ctx.app, flow)) is not None:
        raise FeatureDisabled(f"{flow_name} is switched off", hint=f"Setting: {setting}.")
    if path is not None and not flow.arguments:
        raise InvalidArgument(f"{flow_name} takes no path")
    return flow.run(ctx, path, apply)


def switched_off(app: App, flow: Flow) -> str | None:
    """The setting that disables a flow; None if it is enabled."""
    return None if getattr(app.config.linux_ops.features, flow.feature) else f"mcp.linux_ops.features.{flow.feature}"


def _limit_time(ctx: Context) -> None:
    """Apply the default time limit instead of that of file tools, which is too short for a flow."""
    config = ctx.app.config
    ctx.limit_time(config.capped_seconds(config.linux_ops.process_limits.default_timeout_sec))


def as_text(report: FlowReport) -> str:
    """Render a report as text."""
    shown = [f"{step.description}: {step.result}".replace(": \n", ":\n", 1) for step in report.steps]
    return "\n".join([report.summary, "", *shown])


# --- organize_downloads --------------------------------------------------------------------------------------------


def organize_downloads(ctx: Context, path: str | None, apply: bool) -> FlowReport:
    _limit_time(ctx)
    organizer = ctx.app.organizer
    place = organizer.find(path)
    undo_id = None
    if apply:
        plan, undo_id = organizer.apply(ctx.session, place, ctx.check)
    else:
        plan = organizer.plan(place, ctx.check)
    report = FlowReport("organize_downloads", _plan_steps(plan, bool(undo_id)), _plan_summary(plan, undo_id))
    report.proposed, report.undo_id = (bool(plan.moves) and not undo_id) or None, undo_id
    if plan.moves:
        listed = "".join(f"{old}\t{new}\n" for old, new, _ in plan.moves)
        report.handle = ctx.keep("organize_plan", {"path": place.absolute}, listed.encode("utf-8", "replace"))
    return report


def _plan_steps(plan: "SortingPlan", done: bool) -> list[FlowStep]:
    staying = sum(stay.entries for stay in plan.stays)
    found = f"{counted(len(plan.moves), 'loose file')} to sort, {counted(staying, 'other entry')} to leave alone"
    steps = [FlowStep(f"Looked at {plan.folder.absolute}", found)]
    if plan.groups:
        steps.append(FlowStep("Moved" if done else "Would move", _lines(_by_kind(plan.groups))))
    if plan.renamed:
        more = len(plan.renamed) - _SHOWN_RENAMES
        lines = [f"{old} → {new}" for old, new in plan.renamed[:_SHOWN_RENAMES]]
        lines += [f"and {more:,} more"] if more > 0 else []
        steps.append(FlowStep("Renamed on the way, because the name was taken", _lines(lines)))
    if plan.stays:
        lines = [
            f"{stay.reason}: {counted(stay.entries, 'entry')} ({_examples(stay.examples, stay.entries)})"
            for stay in plan.stays
        ]
        steps.append(FlowStep("Stays where it is", _lines(lines)))
    return steps


def _by_kind(groups: "list[Group]") -> list[str]:
    """A line per kind of file, with the range of years that it is split by."""
    kinds: dict[str, list[Group]] = {}
    for group in groups:
        kinds.setdefault(group.folder.partition("/")[0], []).append(group)
    lines: list[str] = []
    for kind, parts in kinds.items():
        files, years = sum(part.files for part in parts), [part.folder.partition("/")[2] for part in parts]
        split = f", by year {years[0]} to {years[-1]}" if len(parts) > 1 else f"/{years[0]}" if years[0] else ""
        new = " (new)" if all(part.is_new for part in parts) else ""
        examples = _examples(parts[0].examples, files)
        lines.append(f"{kind}/{new} {counted(files, 'file')}, {_size(sum(p.bytes for p in parts))}{split}: {examples}")
    return lines


def _plan_summary(plan: "SortingPlan", undo_id: str | None) -> str:
    if not plan.moves:
        return f"{plan.folder.absolute} is tidy: there is no loose file to sort."
    total = sum(group.bytes for group in plan.groups)
    what = f"{counted(len(plan.moves), 'file')} ({_size(total)})"
    where = counted(len(plan.groups), "folder")
    if undo_id:
        return f"{what} moved into {where}. linux_fs_undo('{undo_id}') or `llmc undo {undo_id}` takes all of it back."
    return (
        f"{what} would go into {where}. Nothing was changed; with apply it is one change, and one undo takes it back."
    )


# --- explain_repo --------------------------------------------------------------------------------------------------


def explain_repo(ctx: Context, path: str | None, apply: bool) -> FlowReport:
    from ...tokens import estimate

    del apply  # there is nothing to change
    _limit_time(ctx)
    place = ctx.app.files.locate(path or ".")
    facts = ctx.app.overview.facts(place, ctx.check)
    sections = (
        ("Layout", facts.layout),
        ("Entry points", facts.entries),
        ("Needs", [", ".join(facts.needs)] if facts.needs else []),
        ("Run it", facts.run),
        ("Test it", facts.test),
        ("Unusual", facts.unusual),
        ("Read first", facts.read_first),
    )
    steps = [FlowStep("Size", facts.size)]
    steps += [FlowStep(title, _lines(lines)) for title, lines in sections if lines]
    summary = f"{facts.name}: {facts.about}" if facts.about else f"{facts.name}: its files don't say what it is."
    report = FlowReport("explain_repo", steps, summary)
    report.steps += _map_step(ctx, place, _MOST_TOKENS - estimate(as_text(report)))
    return report


def _map_step(ctx: Context, place: "Place", tokens: int) -> list[FlowStep]:
    """The most referenced definitions, if an index exists and there is room. Builds no index."""
    if not ctx.app.config.rag.jit_context_enabled or not ctx.app.is_indexed(place.root):
        return []
    from ...rag.query.search import QueryCaller

    below = "" if place.below == b"." else os.fsdecode(place.below)
    caller = QueryCaller(ctx.session, time.monotonic() + _MAP_WAIT_S, ctx.check)
    try:
        drawn = ctx.app.maps.draw(tokens - _MAP_HEAD_TOKENS, caller, place.root, f"{below}/" if below else "")
    except (FeatureUnavailable, ResourceBusy):
        return []  # the index is being rebuilt
    if not drawn or not drawn[0].text:
        return []
    note = f"; index {drawn[0].note}" if drawn[0].note else ""
    return [FlowStep(f"What the rest leans on (line, definition{note})", f"\n{drawn[0].text}")]


# --- system_health -------------------------------------------------------------------------------------------------


def system_health(ctx: Context, path: str | None, apply: bool) -> FlowReport:
    from ...machine.health import uptime_s
    from ...machine.sysinfo import summary

    del path, apply
    _limit_time(ctx)
    state = ctx.app.system.snapshot(ctx.check)
    health = ctx.app.health
    findings = health.findings(state, ctx.check)
    steps = [FlowStep("Now", f"{summary(state)}; up {_duration(uptime_s())}")]
    disks = [f"{disk.mount} {disk.used_percent:.0f} %" for disk in state.disks]
    steps.append(FlowStep("Disks", ", ".join(disks)))
    for finding in findings:
        steps.append(FlowStep(finding.severity.capitalize(), f"{finding.what}. Why: {finding.why}. Do: {finding.do}"))
    try:
        consumers = health.consumers(ctx.check) if ctx.app.config.linux_ops.features.proc_enabled else []
    except FeatureUnavailable:
        consumers = []
    if consumers:
        steps.append(FlowStep("Uses the most", _lines(consumers)))
    serious = [finding for finding in findings if finding.severity != "note"]
    if serious:
        summary_line = f"{counted(len(serious), 'thing')} out of the ordinary, first of all: {serious[0].what}."
    else:
        summary_line = "Nothing out of the ordinary" + (
            f"; {counted(len(findings), 'note')} below." if findings else "."
        )
    return FlowReport("system_health", steps, summary_line)


FLOWS: dict[str, Flow] = {
    "organize_downloads": Flow(
        organize_downloads,
        "Tidy my downloads",
        "plan how the files of a folder of downloads would be sorted; nothing is changed",
        "Help me tidy my downloads. Explain the plan in a few sentences and name what you would do differently.",
        "fs_enabled",
        (Argument("path", "the folder; default: Downloads"),),
    ),
    "explain_repo": Flow(
        explain_repo,
        "Explain this repository",
        "what this repository is, where it starts, how it is run and tested, what is unusual",
        "Explain this repository to somebody who will work on it today: what it is, where to begin, what to watch.",
        "fs_enabled",
        (Argument("path", "a folder in it; default: the first root"),),
    ),
    "system_health": Flow(
        system_health,
        "How does this machine do?",
        "how the machine does, what is out of the ordinary and why that matters",
        "Tell me how this machine does. Begin with what I should act on; say so if there is nothing.",
        "system_enabled",
    ),
}


# --- formatting ----------------------------------------------------------------------------------------------------


def _lines(lines: list[str]) -> str:
    return lines[0] if len(lines) == 1 else "".join(f"{_BULLET}{line}" for line in lines)


def _examples(examples: list[str], total: int) -> str:
    shown = ", ".join(name if len(name) <= 40 else f"{name[:38]}…" for name in examples)
    return f"{shown}, …" if total > len(examples) else shown


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1024:
            return f"{count:.1f} {unit}" if unit != "bytes" and count < 10 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


def _duration(seconds: float) -> str:
    days, hours = divmod(int(seconds) // 3600, 24)
    return f"{counted(days, 'day')} {counted(hours, 'hour')}" if days else f"{counted(hours, 'hour')}"
