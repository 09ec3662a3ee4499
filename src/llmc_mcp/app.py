"""What one server process has: configuration, roots and engines."""

import gc
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, overload, runtime_checkable

from .config.schema import Config, data_directory, get_key, put_key
from .config.trust import ConfigError, user_config_file
from .errors import IsolationRequired, LlmcError
from .files import names, off_limits
from .files.filesystem import Access, Filesystem, Root
from .kernel import syscalls
from .lifecycle import Closable, IdleClock, Problems, Releasable
from .policy import is_broad
from .store.data_dir import database_of
from .store.root_sets import RootSet

if TYPE_CHECKING:
    from .changes.commands import CommandUndo
    from .changes.operations import Operations
    from .changes.patches import Patcher
    from .changes.rewrites import Rewriter
    from .changes.transaction import Changes
    from .changes.undo import Undoer
    from .code.check import ProjectCheck
    from .code.parser import CodeParser
    from .code.rewrite import PatternRewriter
    from .commands.allowlist import Programs
    from .commands.pytest import PytestRunner
    from .commands.runner import CommandRunner
    from .commands.sessions import TerminalSessions
    from .commands.shell_lines import ShellLines
    from .config.live import LiveConfig
    from .egress.client import Denial
    from .files.handle_pages import Pages
    from .files.handles import Handles
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
    from .permissions.approvals import Approvals
    from .permissions.hosts import GrantedHosts
    from .permissions.tokens import TokenTable
    from .rag.build.syntax_client import Checker
    from .rag.query.maps import Maps
    from .rag.query.search import CodeSearch
    from .sandbox.profile import SandboxSettings
    from .sandbox.sandbox import Sandbox
    from .store.base import Store
    from .store.replicas import OwnedProgram

Made = TypeVar("Made")

_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")  # of Docker, Podman, systemd


@runtime_checkable
class Reconfigurable(Protocol):
    """An engine that runs things in a sandbox, and can go on by other settings."""

    def reconfigure(self, settings: "SandboxSettings") -> None: ...


class EngineProperty(Generic[Made]):
    """A part of the app, made on first use and then kept; `closes_before` names the engines that must outlive it."""

    def __init__(self, make: "Callable[[App], Made]", closes_before: tuple[str, ...]) -> None:
        self._make, self.closes_before, self.name = make, closes_before, ""
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: "type[App]", name: str) -> None:
        self.name = name

    @overload
    def __get__(self, app: None, owner: "type[App]") -> Self: ...

    @overload
    def __get__(self, app: "App", owner: "type[App]") -> Made: ...

    def __get__(self, app: "App | None", owner: "type[App]") -> "Self | Made":
        return self if app is None else app.engine_of(self.name, self._make)


def engine(*, closes_before: tuple[str, ...] = ()) -> "Callable[[Callable[[App], Made]], EngineProperty[Made]]":
    """Declare an engine by the method that makes it."""
    return lambda make: EngineProperty(make, closes_before)


class App:
    """Configuration, roots and engines."""

    def __init__(
        self,
        config: Config,
        roots: list[str],
        data_dir: str | None = None,
        own_files: Sequence[str] = (),
        trusted_files: Sequence[str] = (),
    ) -> None:
        """`own_files` are the configuration files in force; those of them that are trusted bind commands too."""
        self.config = config
        self._own_files, self._trusted_files = tuple(own_files), tuple(trusted_files)
        self._started_in = _working_directory()
        self.data_dir = data_dir or data_directory()
        off_limits.forget_unneeded_imports(roots)
        self.files = Filesystem(roots, _access(config, self.data_dir, own_files))
        self.root_set = RootSet(names.show(root.real) for root in self.files.roots)
        self.started = time.monotonic()
        self.problems = Problems()
        self._engines: dict[str, Any] = {}
        self._making = threading.RLock()
        self._idle_clock: IdleClock | None = None
        self._live: LiveConfig | None = None
        self.on_settings: list[Callable[[Config], None]] = []  # told when settings were taken over
        self.on_program: list[Callable[[OwnedProgram], None]] = []  # told before a caller learns a program's id

    def with_roots(self, roots: list[str]) -> "App":
        """Another one, the same but for its roots."""
        other = App(self.config, roots, self.data_dir, self._own_files, self._trusted_files)
        other._live = self._live
        return other

    def follow(self, live: "LiveConfig") -> None:
        """Take over from now on what the user allows or revokes in their configuration file."""
        self._live = live

    def refresh(self) -> None:
        """Take over the settings that may change while a server runs, if the user's file was changed."""
        if self._live is None:
            return
        try:
            fresh = self._live.changed()
        except ConfigError as exc:
            self.problems.add(f"the changed configuration is not in force: {exc.message}")
            return
        if fresh is not None:
            with self._making:
                self._take_over(fresh.config)

    def reload(self) -> list[str]:
        """Take over at once what the user's file says now; returns the settings that changed. Raises ConfigError."""
        if self._live is None:
            return []
        fresh = self._live.reloaded()
        with self._making:
            return self._take_over(fresh.config)

    def _take_over(self, config: Config) -> list[str]:
        from .config.live import LIVE

        changed = [name for name in LIVE if get_key(config, name) != get_key(self.config, name)]
        for name in changed:
            put_key(self.config, name, get_key(config, name))
            self.problems.add(f"mcp.{name} was changed by the user, and is in force")
        if not changed:
            return []
        for tell in self.on_settings:
            tell(self.config)
        settings = self._sandbox_settings()
        for made in self._engines.values():
            if isinstance(made, Reconfigurable):
                made.reconfigure(settings)
        if "shell" in self._engines:
            self.shell.programs.replace(self._programs())
        return changed

    def engine_of(self, name: str, make: "Callable[[App], Made]") -> Made:
        """The engine of a name; two first calls at once must not make two of it."""
        with self._making:
            if name not in self._engines:
                made = self._engines[name] = make(self)
                if isinstance(made, Releasable) and self._idle_clock is None:
                    self._idle_clock = IdleClock(self.release_idle, self.config.limits.helper_idle_sec, self.problems)
            return self._engines[name]

    def release_idle(self, idle_s: float) -> bool:
        """End the helpers, and drop the caches, that have not been used for so long; whether there were any."""
        with self._making:
            engines = dict(self._engines)
        found = [engines[name] for name in closing_order() if name in engines]
        released = [made.release_idle(idle_s) for made in found if isinstance(made, Releasable)]
        if any(released):
            gc.collect()
            syscalls.trim_memory()
        return any(released)

    def close(self) -> None:
        """End every child, close the store."""
        with self._making:
            engines, self._engines = self._engines, {}
            clock, self._idle_clock = self._idle_clock, None
        if clock is not None:
            clock.close()
        if "store" in engines:
            engines["store"].hurry()  # whoever waits for it keeps others from closing
        for name in closing_order():
            made = engines.get(name)
            if isinstance(made, Closable):
                made.close()

    # --- children and the sandbox ----------------------------------------------------------------

    @engine(closes_before=("sandbox", "store"))  # children fill the sandbox's control group until they end
    def launcher(self) -> "Launcher":
        from .kernel.launcher import Launcher

        return _tidy(Launcher())

    @engine()
    def sandbox(self) -> "Sandbox":
        from .sandbox.sandbox import Sandbox

        silent = self.files.silent_roots.find
        roots = tuple(self.files.roots)
        return Sandbox(self.launcher, self._sandbox_settings(), roots, self.data_dir, silent, self._granted_hosts)

    def _granted_hosts(self, owner: object) -> tuple[str, ...]:
        from .commands.sessions import Owner

        return self.granted_hosts.of(*owner) if isinstance(owner, Owner) else ()

    @engine(closes_before=("store",))
    def granted_hosts(self) -> "GrantedHosts":
        from .permissions.hosts import GrantedHosts

        return GrantedHosts(lambda: self.approvals)

    def _sandbox_settings(self) -> "SandboxSettings":
        from .sandbox.profile import settings_from

        return settings_from(self.config)._replace(trusted_files=self._trusted_files)

    @engine()
    def shell(self) -> "CommandRunner":
        from .commands.runner import CommandRunner

        return CommandRunner(self.sandbox, self.files, self._programs(), lambda: self.command_undo)

    @engine(closes_before=("changes", "store"))
    def command_undo(self) -> "CommandUndo | None":
        if not self.config.tools.undo_commands:
            return None
        from .changes.commands import CommandUndo
        from .tracking.tracker import Tracker, TrackingLimits

        limits = self.config.limits
        bounds = TrackingLimits(limits.command_undo_bytes, limits.journal_max_bytes, limits.command_undo_files)
        followed = self._followed_roots()
        tracker = Tracker(self.files, followed, self.data_dir, bounds, self._unfollowed_roots(followed))
        return CommandUndo(tracker, self.changes, self.store, self.root_set)

    def follow_files(self) -> None:
        """Know what the roots look like, which is not part of a command's time; without a journal it says so itself."""
        with suppress(LlmcError):
            if self.command_undo is not None:
                self.command_undo.prepare()

    def _followed_roots(self) -> list[Root]:
        """The roots whose files commands may change with undo: of a whole machine or home, the project alone."""
        roots = [root for root in self.files.roots if not is_broad(os.fsdecode(root.real))]
        if len(roots) < len(self.files.roots) and not is_broad(os.fsdecode(self.project.real)):
            roots.append(self.project)
        reals = {root.real for root in roots}
        inside = [one for one in reals if any(one.startswith(other + b"/") for other in reals)]
        return list({root.real: root for root in roots if root.real not in inside}.values())

    def _unfollowed_roots(self, followed: list[Root]) -> dict[str, str]:
        """The other roots, and what replies say of them."""
        reals = {root.real for root in followed}
        only = ", ".join(root.shown for root in followed)
        why = f"only changes in {only} can be undone" if only else "a whole machine or home"
        return {
            root.shown: why for root in self.files.roots if root.real not in reals and is_broad(os.fsdecode(root.real))
        }

    def _programs(self) -> "Programs":
        from .commands.allowlist import programs_from

        return programs_from(self.config, tuple(self.files.roots))

    @engine(closes_before=("launcher",))
    def shell_lines(self) -> "ShellLines":
        from .commands.shell_lines import ShellLines

        return ShellLines(self.launcher, self.shell.programs, self.data_dir, self.config.tools.run_cmd_shell)

    @engine()
    def pytest(self) -> "PytestRunner":
        from .commands.pytest import PytestRunner

        return PytestRunner(self.launcher, self.shell, self.sandbox, self.files, self.project)

    @engine(closes_before=("launcher", "command_undo"))
    def repls(self) -> "TerminalSessions":
        from .commands.board import ProgramBoard
        from .commands.sessions import TerminalSessions, limits_from

        board, limits = ProgramBoard(self.data_dir), limits_from(self.config)
        return TerminalSessions(self.sandbox, self.files, self.shell.programs, limits, board, self._tell_of_program)

    def _tell_of_program(self, program: "OwnedProgram") -> None:
        for tell in self.on_program:
            tell(program)

    def has_programs(self) -> bool:
        """Whether any program was started that may outlive its call."""
        return "repls" in self._engines

    @engine(closes_before=("launcher",))
    def code(self) -> "CodeEngine":
        return _code_engine(self)

    def command_confinement(self) -> str:
        """How commands are confined here, in a few words; the first time this may test the sandbox."""
        if not self.config.linux_ops.features.proc_enabled or not self.config.tools.enable_run_cmd:
            return "switched off"
        report = self.sandbox.report()
        if not report.level:
            return f"unavailable ({'; '.join(report.reasons.values())})"
        return f"{report.level} sandbox"

    def known_sandbox_level(self) -> str:
        """The level that confines commands, if one has been chosen already; empty otherwise."""
        return self.sandbox.known_level if "sandbox" in self._engines else ""

    def command_terms(self) -> str:
        """What holds for commands: network, /tmp and time; empty where there are none."""
        if not self.config.linux_ops.features.proc_enabled or not self.config.tools.enable_run_cmd:
            return ""
        if not self.sandbox.report().level:
            return ""
        return f"{self.sandbox.shares()}; past 10 s: background"

    def network_denials(self) -> "list[Denial]":
        """What commands were denied of the network, each once; for the records."""
        return self.sandbox.egress.drain_for_audit() if "sandbox" in self._engines else []

    def network_denied(self) -> dict[str, int]:
        """How many requests of commands were denied so far, by reason."""
        from .egress.client import REASONS

        if "sandbox" not in self._engines:
            return dict.fromkeys(REASONS, 0)
        return {reason: self.sandbox.egress.denied[reason] for reason in REASONS}

    # --- files -----------------------------------------------------------------------------------

    @engine()
    def search(self) -> "Search":
        from .files.ripgrep import Search

        return Search(self.files, self.launcher, count_cap=self.config.limits.search_count_cap)

    @engine()
    def reader(self) -> "Reader":
        from .files.reader import Costs, Reader
        from .files.slices import SliceLimits

        limits = self.config.limits
        lines = SliceLimits(limits.max_slice_bytes, limits.max_line_bytes, limits.count_lines_max_bytes)
        self._settle_after_crash()
        return Reader(self.files, Costs(lines, limits.hash_max_bytes, limits.max_image_bytes, limits.edit_max_bytes))

    @engine()
    def lister(self) -> "Lister":
        from .files.listing import Lister

        return Lister(self.files, lambda: self.search)

    @engine()
    def handles(self) -> "Handles":
        from .files.handles import Handles, policy_from

        return Handles(self.store, policy_from(self.config), self.root_set)

    @engine()
    def pages(self) -> "Pages":
        from .files.handle_pages import Pages

        return Pages(self.handles, self.files, self.reader, lambda: self.search)

    # --- changes ---------------------------------------------------------------------------------

    @engine()
    def store(self) -> "Store":
        from .store.opening import store_of

        return store_of(self.config.store, self.data_dir, self.root_set.paths)

    @engine(closes_before=("store",))
    def approvals(self) -> "Approvals":
        from .permissions.approvals import Approvals

        return Approvals(lambda: self.store)

    @engine(closes_before=("store",))
    def token_table(self) -> "TokenTable":
        from .permissions.tokens import TokenTable

        return TokenTable(lambda: self.store)

    @engine(closes_before=("store",))
    def changes(self) -> "Changes":
        from .changes.journal import Journal, limits_from
        from .changes.transaction import Changes
        from .store.leases import Leases

        limits = self.config.limits
        leases = Leases(self.store, limits.lease_ttl_sec)
        journal = Journal(self.store, limits_from(self.config), self.root_set)
        return Changes(self.files, self.store, journal, leases, self.root_set, limits.lease_wait_sec)

    @engine()
    def mutations(self) -> "Operations":
        from .changes.operations import Operations

        return Operations(self.files, self.changes, self.reader.revisions, self.config.limits.edit_max_bytes)

    @engine()
    def patching(self) -> "Patcher":
        from .changes.patches import Patcher

        return Patcher(self.files, self.changes, self.mutations)

    @engine()
    def rewriting(self) -> "Rewriter":
        from .changes.rewrites import Rewriter

        return Rewriter(self.files, self.changes, self.mutations)

    @engine()
    def undoing(self) -> "Undoer":
        from .changes.undo import Undoer

        return Undoer(self.files, self.changes, self.mutations)

    def _settle_after_crash(self) -> None:
        """Settle what a killed server left half-done, before this one first reads files.

        The store's log is there only after such an end; after a clean one, looking costs one stat.
        """
        if os.path.exists(database_of(self.data_dir) + "-wal"):
            try:
                self.changes.settle_abandoned()
            except LlmcError as exc:
                self.problems.add(f"half-done changes could not be settled yet: {exc.message}")

    # --- the code index --------------------------------------------------------------------------

    @engine(closes_before=("launcher", "store"))
    def rag(self) -> "CodeSearch":
        from .rag.query.search import CodeSearch, wanted_from
        from .store.leases import Leases

        leases = Leases(self.store, self.config.limits.lease_ttl_sec)
        spec = wanted_from(self.config)
        roots = self.indexed_roots
        return CodeSearch(self.files, roots, self.launcher, leases, self.data_dir, spec, lambda: self.search)

    @engine()
    def indexed_roots(self) -> "list[Root]":
        from .rag.query.folders import indexed_roots

        return indexed_roots(self.files, self.config.rag.roots, self._started_in)

    @engine()
    def maps(self) -> "Maps":
        from .rag.query.maps import Maps

        return Maps(self.rag)

    @engine(closes_before=("launcher",))
    def checker(self) -> "Checker":
        from .rag.build.syntax_client import Checker

        return Checker(self.launcher, self.data_dir)

    @engine(closes_before=("launcher",))
    def code_parser(self) -> "CodeParser":
        from .code.parser import CodeParser

        return CodeParser(self.launcher, self.data_dir)

    @engine()
    def project_check(self) -> "ProjectCheck":
        from .code.check import ProjectCheck

        seconds = self.config.linux_ops.process_limits.default_timeout_sec
        return ProjectCheck(self.files, self.shell, self.checker, self.project, self.config.capped_seconds(seconds))

    @engine()
    def patterns(self) -> "PatternRewriter":
        from .code.rewrite import PatternRewriter

        return PatternRewriter(self.files, self.search, self.code_parser, self.config.limits.edit_max_bytes)

    @property
    def project(self) -> Root:
        """The first root or, where that is a whole machine or home, the project in which the server was started."""
        first = self.files.roots[0]
        return self.indexed_roots[0] if self.indexed_roots and is_broad(os.fsdecode(first.real)) else first

    def is_indexed(self, root: Root) -> bool:
        """Whether a root has a code index already; none is built to find out."""
        from .rag.store.layout import home_of

        return home_of(self.data_dir, root.real).current() is not None

    def index_state(self) -> str:
        """The state of the code index, in a few words; nothing is built or imported for it."""
        if "rag" in self._engines:
            return self.rag.state()
        if not self.indexed_roots:
            return "no folder is indexed: rag_index(path=FOLDER) indexes one"
        built = all(self.is_indexed(root) for root in self.indexed_roots)
        return "there, compared with the files on use" if built else "not built yet: the first search builds it"

    # --- the machine -----------------------------------------------------------------------------

    @engine()
    def processes(self) -> "Processes":
        from .machine.processes import Processes, visible_from

        return Processes(visible_from(self.config))

    @engine()
    def system(self) -> "SystemInfo":
        from .machine.sysinfo import SystemInfo

        return SystemInfo(self.launcher)

    @engine()
    def health(self) -> "HealthCheck":
        from .machine.health import HealthCheck

        return HealthCheck(self.system, self.processes)

    @engine()
    def overview(self) -> "RepositoryOverview":
        from .machine.repository import RepositoryOverview

        return RepositoryOverview(self.files, lambda: self.search, lambda: self.reader)

    @engine()
    def organizer(self) -> "DownloadSorter":
        from .machine.downloads import DownloadSorter

        return DownloadSorter(self.files, lambda: self.changes, lambda: self.mutations)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it is gone
        return ""


def closing_order() -> list[str]:
    """The engines in the order in which they close: each before those that must outlive it."""
    closes_before: dict[str, tuple[str, ...]] = {
        name: declared.closes_before for name, declared in vars(App).items() if isinstance(declared, EngineProperty)
    }
    order: list[str] = []

    def place(name: str) -> None:
        if name not in order:
            for later in closes_before[name]:
                place(later)
            order.insert(0, name)

    for name in closes_before:
        place(name)
    return order


def _tidy(launcher: "Launcher") -> "Launcher":
    """Beside the first child, remove what the children of killed servers left behind."""
    try:
        threading.Thread(target=_remove_leftovers, name="leftovers", daemon=True).start()
    except RuntimeError:
        pass  # no thread to be had: the next server does it
    return launcher


def _remove_leftovers() -> None:
    from .kernel.scratch import remove_leftovers

    remove_leftovers()


def _code_engine(app: App) -> "CodeEngine":
    settings = app.config.code_execution
    vouched = os.environ.get("LLMC_ISOLATED") == "1"  # the operator's word, and only here: no file can say it
    if settings.require_isolation and not vouched and not _in_container():
        raise IsolationRequired(
            "mcp.code_execution.require_isolation is on, and the server is in no container",
            hint="Run the server in its container; an operator who isolates it otherwise sets LLMC_ISOLATED=1.",
        )
    if settings.engine != "python":
        from .interpreters.monty import MontyEngine

        return MontyEngine(app.launcher, settings.max_memory_mb)
    from .interpreters.cpython import PythonEngine, settings_for_code
    from .sandbox.profile import settings_from

    confined = settings_for_code(settings_from(app.config), settings.max_memory_mb)
    return PythonEngine(app.launcher, confined, app.data_dir, vouched=vouched)


def _in_container() -> bool:
    return any(os.path.exists(mark) for mark in _CONTAINER_MARKS)


def _access(config: Config, data_dir: str, own_files: Sequence[str]) -> Access:
    policy = config.policy
    return Access(
        policy.secret_names,
        policy.secret_exceptions,
        policy.hard_links != "allow",
        policy.cross_mounts,
        data_dir,
        config.store.url != "sqlite",
        policy.protected_names,
        (*own_files, user_config_file()),  # it may be made while the server runs
        off_limits.secrets(config.sandbox.deny_read, off_limits.homes(os.getuid())),
        off_limits.own_code(),
        off_limits.system_code(),
    )
