"""The programs that agents left running, in all servers of the user: list them, end one."""

from collections.abc import Callable

from ..app import App
from ..commands.board import ProgramBoard
from ..commands.board import ShownProgram as ShownProgram
from ..errors import ProcessNotFound


def programs(data_dir: str, principal: str | None, serving: App | None = None) -> list[ShownProgram]:
    """What runs or has just ended, of one principal or of all; nothing is started to find out."""
    own = serving.repls.of_all() if serving is not None and serving.has_programs() else []
    found = [*own, *ProgramBoard(data_dir).others()]
    return [one for one in found if principal in (None, one.principal)]


def activity(app: App) -> int:
    """A number that changes when a program of this server starts, prints or ends."""
    return app.repls.activity() if app.has_programs() else 0


def stop(
    data_dir: str, principal: str | None, proc_id: str, check: Callable[[], None], serving: App | None = None
) -> ShownProgram:
    """End a program with all it started, as its owner would; one of another server is ended by that server."""
    for one in programs(data_dir, principal, serving):
        if one.proc_id != proc_id:
            continue
        own = serving.repls.of_all() if serving is not None and serving.has_programs() else []
        if serving is not None and any(mine.proc_id == proc_id for mine in own):
            serving.repls.stop_for_person(proc_id, check)
        else:
            ProgramBoard(data_dir).request_stop(proc_id)
        return one
    raise ProcessNotFound(f"there is no process {proc_id[:40]!r}")
