"""What one server process has (App) and what one call gets (Context)."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .config.schema import Config, data_directory
from .errors import Cancelled, FeatureUnavailable, Internal, LlmcError, Timeout
from .files import names, off_limits
from .files.filesystem import Access, Filesystem, Root
from .session import Session
from .store.data_dir import database_of
from .store.root_sets import RootSet
from .tool import ToolDef

if TYPE_CHECKING:
    from .changes.operations import Operations
    from .changes.patches import Patcher
    from .changes.transaction import Changes
    from .changes.undo import Undoer
    from .commands.pytest import PytestRunner
    from .commands.runner import CommandRunner
    from .commands.sessions import TerminalSessions
    from .files.handle_pages import Pages
    from .files.handles import Handles, Meta
    from .files.listing import Lister
    from .files.reader import Reader
    from .files.ripgrep import Search
    from .interpreters.engine import Engine as CodeEngine
    from .kernel.launcher import Launcher
    from .machine.downloads import DownloadSorter
    from .machine.health import HealthCheck
    from .machine.processes import Processes
    from .machine.repository import RepositoryOverview
    from .machine.sysinfo import SystemInfo
    from .rag.build.syntax_client import Checker
    from .rag.query.maps import Maps
    from .rag.query.search import CodeSearch
    from .sandbox.sandbox import Sandbox
    from .store.sqlite import Store

Engine = TypeVar("Engine")

_PROGRESS_EVERY_S = 0.5


class App:
    """Configuration, roots and engines; each engine is made when it is first needed."""

    def __init__(
        self, config: Config, roots: list[str], data_dir: str | None = None, own_files: Sequence[str] = ()
    ) -> None:
        self.config = config
        self.data_dir = data_dir or data_directory()
        off_limits.forget_unneeded_imports(roots)
        self.files = Filesystem(roots, _access(config, self.data_dir, own_files))
        self.root_set = RootSet(names.show(root.real) for root in self.files.roots)
        self.listed: list[ToolDef] = []  # the gate sets both: which tools this mode shows,
        self.tools: dict[str, ToolDef] = {}  # and which there are
        self.settle: Callable[[], None] = lambda: None  # and how to wait until past calls are in the store
        self.started = time.monotonic()
        self._engines: dict[str, Any] = {}
        self.problems: list[str] = []  # for the log: what went wrong without failing a call
        self._making = threading.RLock()

    def _engine(self, name: str, make: Callable[[], Engine]) -> Engine:
        with self._making:  # two first calls at once must not make two engines
            if name not in self._engines:
                self._engines[name] = make()
            return self._engines[name]

    @property
    def launcher(self) -> "Launcher":
        from .kernel.launcher import Launcher

        return self._engine("launcher", lambda: _tidy(Launcher()))

    @property
    def search(self) -> "Search":
        from .files.ripgrep import Search

        cap = self.config.limits.search_count_cap
        return self._engine("search", lambda: Search(self.files, self.launcher, count_cap=cap))

    @property
    def reader(self) -> "Reader":
        from .files.reader import Costs, Reader
        from .files.slices import SliceLimits

        limits = self.config.limits
        lines = SliceLimits(limits.max_slice_bytes, limits.max_line_bytes, limits.count_lines_max_bytes)
        costs = Costs(lines, limits.hash_max_bytes, limits.max_image_bytes)
        return self._engine("reader", lambda: self._after_a_crash(Reader(self.files, costs)))

    @property
    def lister(self) -> "Lister":
        from .files.listing import Lister

        return self._engine("lister", lambda: Lister(self.files, lambda: self.search))

    @property
    def sandbox(self) -> "Sandbox":
        from .sandbox.profile import settings_from
        from .sandbox.sandbox import Sandbox

        settings = settings_from(self.config)
        roots = tuple(self.files.roots)
        return self._engine("sandbox", lambda: Sandbox(self.launcher, settings, roots, self.data_dir))

    @property
    def shell(self) -> "CommandRunner":
        from .commands.allowlist import programs_from
        from .commands.runner import CommandRunner

        roots = tuple(self.files.roots)
        return self._engine("shell", lambda: CommandRunner(self.sandbox, self.files, programs_from(self.config, roots)))

    @property
    def pytest(self) -> "PytestRunner":
        from .commands.pytest import PytestRunner

        return self._engine("pytest", lambda: PytestRunner(self.launcher, self.shell, self.sandbox, self.files))

    @property
    def processes(self) -> "Processes":
        from .machine.processes import Processes, visible_from

        return self._engine("processes", lambda: Processes(visible_from(self.config)))

    @property
    def repls(self) -> "TerminalSessions":
        from .commands.sessions import TerminalSessions, limits_from

        return self._engine(
            "repls", lambda: TerminalSessions(self.sandbox, self.files, self.shell.programs, limits_from(self.config))
        )

    @property
    def system(self) -> "SystemInfo":
        from .machine.sysinfo import SystemInfo

        return self._engine("system", lambda: SystemInfo(self.launcher))

    @property
    def health(self) -> "HealthCheck":
        from .machine.health import HealthCheck

        return self._engine("health", lambda: HealthCheck(self.system, self.processes))

    @property
    def overview(self) -> "RepositoryOverview":
        from .machine.repository import RepositoryOverview

        return self._engine(
            "overview", lambda: RepositoryOverview(self.files, lambda: self.search, lambda: self.reader)
        )

    @property
    def code(self) -> "CodeEngine":
        return self._engine("code", lambda: _code_engine(self))

    def command_confinement(self) -> str:
        """How commands are confined here, in a few words; the first time this may test the sandbox."""
        if "run_cmd" not in self.tools:
            return "switched off"
        report = self.sandbox.report()
        return f"{report.level} sandbox" if report.level else f"unavailable ({'; '.join(report.reasons.values())})"

    @property
    def store(self) -> "Store":
        from .store.sqlite import Store

        return self._engine("store", lambda: Store(self.data_dir))

    @property
    def changes(self) -> "Changes":
        from .changes.journal import Journal, limits_from
        from .changes.transaction import Changes
        from .store.leases import Leases

        limits = self.config.limits

        def make() -> Changes:
            leases = Leases(self.store, limits.lease_ttl_sec)
            journal = Journal(self.store, limits_from(self.config), self.root_set)
            return Changes(self.files, self.store, journal, leases, self.root_set, limits.lease_wait_sec)

        return self._engine("changes", make)

    @property
    def rag(self) -> "CodeSearch":
        from .rag.query.search import CodeSearch, wanted_from
        from .store.leases import Leases

        def make() -> CodeSearch:
            leases = Leases(self.store, self.config.limits.lease_ttl_sec)
            return CodeSearch(self.files, self.launcher, leases, self.data_dir, wanted_from(self.config))

        return self._engine("rag", make)

    @property
    def maps(self) -> "Maps":
        from .rag.query.maps import Maps

        return self._engine("maps", lambda: Maps(self.rag))

    def is_indexed(self, root: Root) -> bool:
        """Whether there is a code index of a root already; nothing is built for the answer."""
        from .rag.store.layout import home_of

        return home_of(self.data_dir, root.real).current() is not None

    @property
    def checker(self) -> "Checker":
        from .rag.build.syntax_client import Checker

        return self._engine("checker", lambda: Checker(self.launcher, self.data_dir))

    def index_state(self) -> str:
        """What there is of the code index, in a few words; nothing is built or imported for it."""
        if "rag" in self._engines:
            return self.rag.state()
        from .rag.store.layout import home_of

        built = [home_of(self.data_dir, root.real).current() is not None for root in self.files.roots]
        return "there, compared with the files on use" if all(built) else "not built yet: the first search builds it"

    def _after_a_crash(self, engine: Engine) -> Engine:
        """Settle what a killed server left half-done before this one first reads files.

        Only then is the store's log still there; after a clean end, looking costs one stat.
        """
        if os.path.exists(database_of(self.data_dir) + "-wal"):
            try:
                self.changes.settle_once()
            except LlmcError as exc:
                self.problems.append(f"half-done changes could not be settled yet: {exc.message}")
        return engine

    @property
    def mutations(self) -> "Operations":
        from .changes.operations import Operations

        cap = self.config.limits.edit_max_bytes
        return self._engine("mutations", lambda: Operations(self.files, self.changes, cap))

    @property
    def patching(self) -> "Patcher":
        from .changes.patches import Patcher

        return self._engine("patching", lambda: Patcher(self.files, self.changes, self.mutations))

    @property
    def organizer(self) -> "DownloadSorter":
        from .machine.downloads import DownloadSorter

        return self._engine(
            "organizer", lambda: DownloadSorter(self.files, lambda: self.changes, lambda: self.mutations)
        )

    @property
    def undoing(self) -> "Undoer":
        from .changes.undo import Undoer

        return self._engine("undoing", lambda: Undoer(self.files, self.changes, self.mutations))

    @property
    def handles(self) -> "Handles":
        from .files.handles import Handles, policy_from

        return self._engine("handles", lambda: Handles(self.store, policy_from(self.config), self.root_set))

    @property
    def pages(self) -> "Pages":
        from .files.handle_pages import Pages

        return self._engine("pages", lambda: Pages(self.handles, self.files, self.reader, lambda: self.search))

    def close(self) -> None:
        """End every child, close the store."""
        with self._making:
            engines, self._engines = self._engines, {}
        for name in ("repls", "code", "rag", "checker", "launcher", "sandbox", "changes", "store"):
            if name in engines:
                engines[name].close()


def _tidy(launcher: "Launcher") -> "Launcher":
    """With the first child comes the time to remove what children of killed servers left; nobody waits for that."""
    threading.Thread(target=_remove_leftovers, name="leftovers", daemon=True).start()
    return launcher


def _remove_leftovers() -> None:
    from .kernel.scratch import remove_leftovers

    remove_leftovers()


def _code_engine(app: App) -> "CodeEngine":
    settings = app.config.code_execution
    if settings.engine != "python":
        from .interpreters.monty import MontyEngine

        return MontyEngine(app.launcher, settings.max_memory_mb)
    from .interpreters.cpython import PythonEngine, settings_for_code
    from .sandbox.profile import settings_from

    vouched = os.environ.get("LLMC_ISOLATED") == "1"  # the operator's word, and only here: no file can say it
    confined = settings_for_code(settings_from(app.config), settings.max_memory_mb)
    return PythonEngine(app.launcher, confined, app.data_dir, vouched=vouched)


def _access(config: Config, data_dir: str, own_files: Sequence[str]) -> Access:
    policy = config.policy
    return Access(
        policy.secret_names,
        policy.secret_exceptions,
        policy.hard_links != "allow",
        policy.cross_mounts,
        data_dir,
        policy.protected_names,
        tuple(own_files),
        off_limits.secrets(config.sandbox.deny_read, off_limits.homes(os.getuid())),
        off_limits.own_code(),
    )


class Context:
    """One call: who, until when, and whether it is still wanted. Engines poll `check`."""

    def __init__(
        self,
        app: App,
        session: Session,
        *,
        correlation_id: str,
        progress: Callable[[float, str], None] | None = None,
        parent: "Context | None" = None,
    ) -> None:
        self.app, self.session, self.correlation_id = app, session, correlation_id
        self.deadline: float | None = None
        self._progress, self._parent = progress, parent
        self._started = self._last_told = time.monotonic()
        self._cancelled = False
        self.doing = "working"  # what a client that asked for progress is told
        self.reply_bytes = app.config.limits.max_reply_bytes  # the gate sets it: how long this call's reply may be
        self.truncated = False  # for the log: whether the reply was cut
        self.warnings: list[str] = []  # for the log: what went wrong without failing the call
        self.kept_bytes = 0  # for the statistics: what went behind a handle instead of into the reply

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
        if self._parent is not None:
            self._parent.check()
        now = time.monotonic()
        if self.deadline is not None and now > self.deadline:
            raise Timeout("the call took too long", hint="Narrow the path or the pattern.")
        if self._progress is not None and now - self._last_told > _PROGRESS_EVERY_S:
            self._last_told = now
            self._progress(now - self._started, self.doing)

    def call_tool(self, name: str, arguments: dict[str, object]) -> object:
        """Call another tool as part of this call; the gate puts the way there in place."""
        raise Internal(f"{name}({', '.join(arguments)}) was called outside of the gate")

    def keep(self, kind: str, meta: "Meta", payload: bytes) -> str | None:
        """Store what the reply has no room for; None, and a warning in the log, where nothing can be stored."""
        self.kept_bytes = max(self.kept_bytes, len(payload))
        try:
            return self.app.handles.create(self.session.principal, kind, meta, payload)
        except FeatureUnavailable as exc:
            self.warnings.append(exc.message)
            return None

    def refer(self, kind: str, meta: "Meta", size: int) -> str | None:
        """A handle on a file that is too large to keep a copy of."""
        try:
            return self.app.handles.refer(self.session.principal, kind, meta, size)
        except FeatureUnavailable as exc:
            self.warnings.append(exc.message)
            return None
