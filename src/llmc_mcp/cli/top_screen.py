"""The screen of `llmc top`, on textual. Everything that it shows is plain text: no cell is read as markup."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Static

from .. import __version__
from ..errors import LlmcError
from ..store.data_dir import watched_files
from ..visible import visible
from .top_views import Sources, View

if TYPE_CHECKING:  # what a key needs is imported when it is pressed
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ..app import App as Engines
    from ..changes.journal import Change

_LOOK_EVERY_S = 0.25
_DETAIL_MOST = 100_000
_KEYS = {
    "1": "↑↓ choose  enter summary  U undo all of it",
    "2": "↑↓ choose",
    "3": "↑↓ choose  enter diff  u undo or redo",
    "4": "↑↓ choose  enter arguments  a approve  d deny",
    "5": "↑↓ choose  enter output  s stop",
}


class TopScreen(App[None]):
    """One table at a time, its keys below it, and what was done last."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    #head, #keys { height: 1; background: $panel; }
    #notice { height: 1; }
    #table { height: 1fr; }
    #detail { height: 50%; display: none; overflow: auto auto; border-top: solid $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *((key, f"view('{key}')", "") for key in _KEYS),
        ("q", "quit", ""),
        ("escape", "close_detail", ""),
        ("u", "undo", ""),
        ("U", "undo_session", ""),
        ("a", "answer(True)", ""),
        ("d", "answer(False)", ""),
        ("s", "stop", ""),
    ]

    def __init__(self, data_dir: str) -> None:
        super().__init__()
        self._data_dir = data_dir
        self._sources = Sources(data_dir)
        self._views = self._sources.views()
        self._watched = watched_files(data_dir)
        self._seen: list[object] = []
        self._shown, self._told = "1", ""

    # --- showing ---------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield DataTable[Text](id="table", cursor_type="row", zebra_stripes=False)
        yield Static(id="detail", markup=False)
        yield Static(id="notice", markup=False)
        yield Static(id="keys", markup=False)

    def on_mount(self) -> None:
        self._show_columns()
        self._look()
        self.set_interval(_LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        """Read anew if anything changed since the last look."""
        stamps = [_stamp(path) for path in self._watched]
        if stamps != self._seen:
            self._seen = stamps
            self._show_rows()

    @property
    def _view(self) -> View:
        return self._views[self._shown]

    @property
    def _table(self) -> DataTable[Text]:
        return cast("DataTable[Text]", self.query_one("#table"))

    def _show_columns(self) -> None:
        self._table.clear(columns=True)
        for name in self._view.columns:
            self._table.add_column(Text(name))
        names = "  ".join(f"{key} {view.title}" for key, view in self._views.items())
        self._tell("keys", f"{_KEYS[self._shown]}  q quit")
        self._tell("head", f"LLMC {__version__}  {names}")

    def _show_rows(self) -> None:
        table, chosen = self._table, self._chosen()
        try:
            rows = self._view.rows()
        except LlmcError as exc:
            self._tell("notice", visible(exc.message))
            return
        table.clear()
        for row in rows:
            table.add_row(*(Text(cell, no_wrap=True) for cell in row.cells[: len(self._view.columns)]), key=row.key)
        keys = [row.key for row in rows]
        if chosen in keys:
            table.move_cursor(row=keys.index(chosen), animate=False)
        if not rows and not self._told:  # what became of the last row is not written over by the next look
            self._tell("notice", f"no {self._view.title.lower()} yet")

    def _chosen(self) -> str:
        table = self._table
        if not table.row_count:
            return ""
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or ""

    def _tell(self, where: str, text: str) -> None:
        self.query_one(f"#{where}", Static).update(Text(text, no_wrap=True))

    def _notice(self, text: str) -> None:
        self._told = text
        self._tell("notice", visible(text))

    # --- keys ------------------------------------------------------------------------------------

    def action_view(self, key: str) -> None:
        self._shown = key
        self.action_close_detail()
        self._notice("")
        self._show_columns()
        self._show_rows()

    def action_close_detail(self) -> None:
        self.query_one("#detail", Static).display = False
        self._table.focus()

    def on_data_table_row_selected(self) -> None:
        """Show more of the chosen row."""
        try:
            text = self._detail(self._chosen())
        except LlmcError as exc:
            text = exc.message
        if text:
            detail = self.query_one("#detail", Static)
            detail.update(Text(visible(text[:_DETAIL_MOST], keep="\n\t")))
            detail.display = True

    def _detail(self, chosen: str) -> str:
        from ..review.processes import programs
        from ..review.summary import as_lines, summarize_session
        from ..store.sessions import EVERYTHING

        sources = self._sources
        if self._shown == "1":
            return "\n".join(as_lines(summarize_session(sources.store, sources.journal, EVERYTHING, chosen)))
        if self._shown == "3":
            change = sources.journal.find(chosen, None)
            with self._engines([change]) as app:
                return app.undoing.diff([change], most=_DETAIL_MOST)
        if self._shown == "4":
            return next((one.arguments for one in sources.approvals.pending() if one.id == chosen), "")
        if self._shown == "5":
            return next((one.output for one in programs(self._data_dir, None) if one.proc_id == chosen), "")
        return ""

    def _engines(self, changes: "Sequence[Change]") -> "AbstractContextManager[Engines]":
        """What undoes these changes."""
        from ..review.undoing import app_on

        return app_on(changes, self._sources.loaded.config, self._data_dir)

    def action_undo(self) -> None:
        """Take the chosen change back, or redo it."""
        if self._shown == "3" and (chosen := self._chosen()):
            self._do(lambda: self._undo(chosen))

    def _undo(self, chosen: str) -> str:
        from .person import never, session

        change = self._sources.journal.find(chosen, None)
        verb = "undone"
        if change.undone_by is not None:
            change, verb = self._sources.journal.find(change.undone_by, None), "redone"
        with self._engines([change]) as app:
            app.undoing.undo(session(), change, False, never)
        return f"{verb}: {chosen}"

    def action_undo_session(self) -> None:
        """Take back all that the chosen session changed."""
        if self._shown == "1" and (chosen := self._chosen()):
            self._do(lambda: self._undo_session(chosen))

    def _undo_session(self, chosen: str) -> str:
        from ..review.undoing import standing, undo_all
        from .person import never, session

        changes = standing(self._sources.journal, None, chosen)
        if not changes:
            return "this session has no change to undo"
        with self._engines(changes) as app:
            done = undo_all(app, session(), changes, never)
        failed = [one.failure.message for one in done if one.failure is not None]
        return f"undone: {len(done) - len(failed)} of {len(done)} changes {' '.join(failed[:1])}"

    def action_answer(self, yes: bool) -> None:
        """Approve or deny the chosen call."""
        if self._shown == "4" and (chosen := self._chosen()):
            self._do(lambda: self._answer(chosen, yes))

    def _answer(self, chosen: str, yes: bool) -> str:
        answered = self._sources.approvals.answer(chosen, yes, "llmc top")
        return f"{answered.state}: {answered.deed}"

    def action_stop(self) -> None:
        """End the chosen program."""
        if self._shown == "5" and (chosen := self._chosen()):
            self._do(lambda: self._stop(chosen))

    def _stop(self, chosen: str) -> str:
        from ..review.processes import stop

        return f"stopping: {stop(self._data_dir, None, chosen, lambda: None).command}"

    def _do(self, act: "Callable[[], str]") -> None:
        """Act in a thread, so that the screen lives on, and say what came of it."""

        def run() -> None:
            try:
                told = act()
            except LlmcError as exc:
                told = exc.message
            self.call_from_thread(self._acted, told)

        self.run_worker(run, thread=True)

    def _acted(self, told: str) -> None:
        self._show_rows()
        self._notice(told)


def _stamp(path: str) -> object:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns, info.st_size
