"""What one server process has (App) and what one call gets (Context)."""

import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from .config import Config
from .errors import Cancelled, Timeout
from .session import Session
from .te.filesystem import Filesystem
from .tool import ToolDef

if TYPE_CHECKING:
    from .te.launcher import Launcher
    from .te.search import Search

_PROGRESS_EVERY_S = 0.5


class App:
    """Configuration, roots and engines; each engine is made when it is first needed."""

    def __init__(self, config: Config, roots: list[str]) -> None:
        self.config = config
        self.files = Filesystem(roots)
        self.listed: list[ToolDef] = []  # the catalogue sets it: which tools this mode shows
        self._making = threading.Lock()

    @cached_property
    def launcher(self) -> "Launcher":
        from .te.launcher import Launcher

        return Launcher()

    @cached_property
    def _search(self) -> "Search":
        from .te.search import Search

        return Search(self.files, self.launcher, count_cap=self.config.limits.search_count_cap)

    @property
    def search(self) -> "Search":
        with self._making:  # two first calls at once must not make two engines
            return self._search

    def close(self) -> None:
        """End every child."""
        if "launcher" in self.__dict__:
            self.launcher.close()


class Context:
    """One call: who, until when, and whether it is still wanted. Engines poll `check`."""

    def __init__(
        self,
        app: App,
        session: Session,
        *,
        correlation_id: str,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self.app, self.session, self.correlation_id = app, session, correlation_id
        self.deadline: float | None = None
        self._progress = progress
        self._started = self._last_told = time.monotonic()
        self._cancelled = False

    def cancel(self) -> None:
        """Called from another thread; the engine notices at its next `check`."""
        self._cancelled = True

    def limit_time(self, seconds: float) -> None:
        """The call must be done `seconds` from now."""
        self.deadline = time.monotonic() + seconds

    def check(self) -> None:
        """Raise if the caller took the call back or its time is up; tell a client that asked how long it runs."""
        if self._cancelled:
            raise Cancelled("the call was cancelled")
        now = time.monotonic()
        if self.deadline is not None and now > self.deadline:
            raise Timeout("the call took too long", hint="Narrow the path or the pattern.")
        if self._progress is not None and now - self._last_told > _PROGRESS_EVERY_S:
            self._last_told = now
            self._progress(now - self._started)
