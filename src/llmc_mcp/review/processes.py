"""The programs that agents left running in this server, of all sessions: list them, end one."""

import signal
from collections.abc import Callable

from ..app import App
from ..commands.sessions import ForeignProgram
from ..errors import ProcessNotFound


def programs(app: App, principal: str | None) -> list[ForeignProgram]:
    """What runs or has just ended, of one principal or of all; nothing is started to find out."""
    if not app.has_programs():
        return []
    return [one for one in app.repls.of_all() if principal in (None, one.owner.principal)]


def activity(app: App) -> int:
    """A number that changes when a program starts, prints or ends."""
    return app.repls.activity() if app.has_programs() else 0


def stop(app: App, principal: str | None, proc_id: str, check: Callable[[], None]) -> ForeignProgram:
    """End a program with all it started, as its owner would."""
    for one in programs(app, principal):
        if one.program.proc_id == proc_id:
            app.repls.stop(one.owner, proc_id, signal.SIGTERM, check)
            return one
    raise ProcessNotFound(f"there is no process {proc_id[:40]!r}")
