"""The state of the machine."""

from typing import Annotated, ClassVar

import msgspec

from ...context import Context
from ...tool import SYSTEM, SYSTEM_LOGS, Result, Row, tool

MaxServices = Annotated[int, msgspec.Meta(ge=1, le=1000)]
LogLines = Annotated[int, msgspec.Meta(ge=1, le=5000)]

_ROOM_FOR_META = 600


class DiskUse(msgspec.Struct):
    """How full a file system is."""

    mount: str
    used_percent: float


class SystemSnapshot(Result):
    """The current state of the machine."""

    cpu_percent: float
    load_avg: list[float]
    mem_used_mb: int
    mem_total_mb: int
    disks: list[DiskUse]
    short_summary: str
    logged: ClassVar[tuple[str, ...]] = ("short_summary",)


class ServiceRow(Row):
    """A running service."""

    name: str
    description: str
    line_format: ClassVar[str] = "{name}: {description}"


class Services(Result):
    """Running services."""

    services: list[ServiceRow]
    truncated: bool
    shown: int | None = None
    body: ClassVar[str] = "services"


class SystemLog(Result):
    """The end of the system log; if older lines exceed the reply, the handle has all lines."""

    content: str
    source: str
    truncated: bool
    handle: str | None = None
    body: ClassVar[str] = "content"
    handle_kind: ClassVar[str] = "system_log"


@tool("CPU, load, memory and disks of the machine", needs=SYSTEM, read_only=True)
def linux_sys_snapshot(ctx: Context, include_disks: bool = True) -> SystemSnapshot:
    from ...machine.sysinfo import summary

    state = ctx.app.system.snapshot(ctx.check)
    disks = [DiskUse(disk.mount, disk.used_percent) for disk in state.disks if include_disks]
    return SystemSnapshot(
        state.cpu_percent, list(state.load_avg), state.mem_used_mb, state.mem_total_mb, disks, summary(state)
    )


@tool("Running systemd services", needs=SYSTEM, read_only=True)
def linux_sys_services(ctx: Context, max_results: MaxServices = 100) -> Services:
    found = ctx.app.system.services(ctx.check)
    rows = [ServiceRow(service.name, service.description) for service in found[:max_results]]
    return Services(rows, len(found) > max_results)


@tool("Last lines of the system log (journald or syslog)", needs=SYSTEM_LOGS, read_only=True)
def linux_sys_logs(ctx: Context, lines: LogLines = 100, unit: str | None = None, since: str | None = None) -> SystemLog:
    log = ctx.app.system.logs(lines, unit, since, ctx.check)
    room = ctx.reply_bytes - _ROOM_FOR_META
    content = _newest(log.content, room)
    reply = SystemLog(content, log.source, len(content) < len(log.content))
    if reply.truncated:
        reply.handle = ctx.keep(reply.handle_kind, {"source": log.source}, log.content.encode("utf-8", "replace"))
    return reply


def _newest(text: str, room: int) -> str:
    """The last whole lines that fit, measured as JSON: the end of a log matters most."""
    kept: list[str] = []
    for line in reversed(text.splitlines(keepends=True)):
        room -= len(msgspec.json.encode(line))
        if room < 0:
            break
        kept.append(line)
    return "".join(reversed(kept))
