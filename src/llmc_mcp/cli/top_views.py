"""What `llmc top` lists: one view per key, each a table of plain text, read anew from the store."""

import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ..store.root_sets import folder_of
from ..store.sessions import EVERYTHING, calls, sessions
from ..visible import visible

if TYPE_CHECKING:  # the first view is there before the rest is imported
    from ..changes.journal import Change, Journal
    from ..config.load import LoadedConfig
    from ..permissions.approvals import Approvals
    from ..store.base import Store

_LISTED = 200
_SESSION_COLUMNS = ("session", "agent", "calls", "fail", "in", "out", "saved", "sandbox", "last", "folder")


class ViewRow(NamedTuple):
    """A line of a view: what it is of, and its cells."""

    key: str
    cells: tuple[str, ...]


class View(NamedTuple):
    """A table: its title, its columns, and how to read its rows."""

    title: str
    columns: tuple[str, ...]
    rows: Callable[[], list[ViewRow]]


class Sources:
    """Where the views read from, as the person who owns the store."""

    def __init__(self, data_dir: str) -> None:
        self.data_dir = data_dir

    @cached_property
    def store(self) -> "Store":
        from ..store.opening import store_of

        return store_of(self.loaded.config.store, self.data_dir)

    @cached_property
    def loaded(self) -> "LoadedConfig":
        from ..config.load import load

        return load()

    @cached_property
    def journal(self) -> "Journal":
        from ..review.undoing import journal_of

        return journal_of(self.loaded.config, self.store)

    @cached_property
    def approvals(self) -> "Approvals":
        from ..permissions.approvals import Approvals

        return Approvals(lambda: self.store)

    def views(self) -> dict[str, View]:
        """The views by the keys that show them."""
        return {
            "1": View(
                "Sessions",
                ("session", "agent", "calls", "fail", "in", "out", "saved", "sandbox", "last"),
                self._sessions,
            ),
            "2": View("Calls", ("when", "tool", "result", "ms", "out", "saved", "session", "arguments"), self._calls),
            "3": View("Changes", ("change", "when", "state", "session", "what"), self._changes),
            "4": View("Approvals", ("id", "until", "tool", "session", "what"), self._approvals),
            "5": View("Processes", ("process", "state", "session", "command"), self._programs),
        }

    def _sessions(self) -> list[ViewRow]:
        return [
            _row(
                one.session_id,
                one.session_id,
                one.agent_id,
                f"{one.calls:,}",
                f"{one.errors:,}",
                short(one.tokens_in),
                short(one.tokens_out),
                short(one.tokens_saved),
                one.sandbox or "-",
                clock(one.last_at),
                folder_of(one.roots),
            )
            for one in sessions(self.store, EVERYTHING, _LISTED)
        ]

    def _calls(self) -> list[ViewRow]:
        return [
            _row(
                str(one.id),
                clock(one.at),
                one.tool,
                one.status,
                f"{one.duration_ms:,.0f}",
                short(one.tokens_out),
                short(one.tokens_saved),
                one.session_id,
                one.args,
            )
            for one in calls(self.store, EVERYTHING, _LISTED)
        ]

    def _changes(self) -> list[ViewRow]:
        return [
            _row(one.id, one.id, clock(one.at), state_of(one), one.session_id, what_of(one))
            for one in self.journal.history(None, None, _LISTED)
        ]

    def _approvals(self) -> list[ViewRow]:
        return [
            _row(one.id, one.id, clock(one.expires_at), one.tool, one.session_id, one.deed)
            for one in self.approvals.pending()
        ]

    def _programs(self) -> list[ViewRow]:
        from ..review.processes import programs

        found = programs(self.data_dir, None)
        return [_row(one.proc_id, one.proc_id, one.state, one.session_id, one.command) for one in found]


def state_of(change: "Change") -> str:
    """The state of a change in a word."""
    return "undone" if change.undone_by is not None else "undo" if change.undoes is not None else change.state


def what_of(change: "Change") -> str:
    """What a change did, in a line."""
    from ..changes.effects import effects_of, line_of

    effects = effects_of(change)
    first = effects[0]
    counts = "" if first.added is None else f" +{first.added} -{first.removed}"
    more = f" and {len(effects) - 1} more" if len(effects) > 1 else ""
    command = f"$ {line} " if (line := line_of(change)) is not None else ""
    return f"{command}{first.action} {first.path}{counts}{more}"


def clock(at: float) -> str:
    """A time of day, or a date if it is not of today."""
    then, now = time.localtime(at), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d", then)


def short(count: int) -> str:
    """A count in at most four characters."""
    return f"{count}" if count < 1000 else f"{count / 1000:.0f}k" if count < 1_000_000 else f"{count / 1e6:.0f}M"


def _row(key: str, *cells: str) -> ViewRow:
    return ViewRow(key, tuple(visible(cell) for cell in cells))
