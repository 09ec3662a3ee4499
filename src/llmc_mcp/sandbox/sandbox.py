"""Where commands run: the choice among the levels of confinement.

`workspace` is bubblewrap: a file system in which only the roots, a private /tmp and read-only system folders
exist, in namespaces of its own. `landlock` needs nothing but the kernel: the same files are out of reach, though
their names can still be seen and their modes changed. `off` is for an operator who confines the whole server.
No level is taken on trust: each passes a self-test here, on this machine, before the first command (`selftest`).

`auto` chooses once. What was seen to hold is never exchanged for less until the machine is started again: whoever
could make the stronger level fail, or its test take too long, would choose their own walls.
"""

import os
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from ..egress.client import Egress
from ..errors import FeatureUnavailable, InvalidArgument, LlmcError, NotFound, ResourceBusy
from ..files.filesystem import Root
from ..files.off_limits import SYSTEM_FOLDERS
from ..kernel.child import Child
from ..kernel.launcher import ConfinementError, Launcher
from ..kernel.limits import ControlGroup
from ..kernel.namespaces import MachineSpec
from ..kernel.scratch import Scratch
from . import selftest
from .cover_check import CoverCheck
from .git_identity import identity_file
from .levels import WorkspaceLevel, find_bubblewrap, make_level
from .machines import Machine, Machines, make_machine
from .profile import (
    HIDDEN,
    LEVELS,
    READ_ONLY,
    Launch,
    Level,
    Profile,
    SandboxSettings,
    covers,
    make_profile,
)

_NOTHING_WEAKER = (
    "It has held since this machine was started, so auto takes nothing weaker; the operator can, by mcp.sandbox.level."
)


_LISTED = 6  # entries of the allowlist that a sentence names


class SandboxReport(NamedTuple):
    """How commands are confined here: the level in force, or why there is none, and what each test found."""

    level: str
    reasons: dict[str, str]  # level → why not
    held: dict[str, list[str]]  # level → what it was seen to prevent
    not_held: dict[str, list[str]]  # level → what it does not prevent


class Sandbox:
    """Starts commands at the strongest level that was seen to work; made once per server."""

    def __init__(
        self,
        launcher: Launcher,
        settings: SandboxSettings,
        roots: tuple[Root, ...],
        data_dir: str,
        silent: Callable[[], frozenset[bytes]] = frozenset,
        granted: Callable[[object], tuple[str, ...]] = lambda _: (),
    ) -> None:
        """`silent` finds roots that do not answer, by their real paths: commands run without them.

        `granted` finds the hosts that a person lets a session reach besides those on the list.
        """
        self._granted = granted
        if settings.level not in LEVELS:
            raise InvalidArgument(f"mcp.sandbox.level is none of {', '.join(LEVELS)}")
        self._settings, self._roots, self._data_dir, self._silent = settings, roots, data_dir, silent
        # Resource limits do not count root's processes; a control group does, with a launcher of its own in it.
        self._group = ControlGroup(settings.bounds) if os.getuid() == 0 and not settings.run_as else None
        self._own_launcher = Launcher(self._group.procs) if self._group and self._group.procs else None
        self._launcher = self._own_launcher or launcher
        self._lock = threading.Lock()
        self._level: Level | None = None
        self._profile: Profile | None = None
        self._stamp: object = None
        self._covered = CoverCheck()
        self._report: SandboxReport | None = None
        self._held = ""  # the level that was seen to hold; `auto` takes no other one afterwards
        self._untested: ResourceBusy | None = None  # why it is not known whether a level holds
        self._egress = Egress(launcher)  # not in the group of commands: those could leave it no thread to run
        self._machines = Machines(settings.idle_s, self._let_go)
        self._proxy_failed = ""  # why there is no proxy although there should be one
        self._tmp: Scratch | None = None  # where machines mount their /tmp, each for itself

    def level(self) -> Level:
        """The level in force; FEATURE_UNAVAILABLE with the reason where nothing holds."""
        with self._lock:
            if self._level is None or self._stamp != self._now(self._answering()):
                self._forget()
                self._choose()
            if self._level is None:
                raise self._untested or self._unavailable()
            return self._level

    @property
    def known_level(self) -> str:
        """The name of the level in force, without testing one for it; empty as long as none was needed."""
        level = self._level
        return "" if level is None else level.name

    def machine(self, owner: object, level: Level) -> Machine | None:
        """What the commands of a session share at a level of this sandbox; None where each is by itself."""
        if owner is None or not isinstance(level, WorkspaceLevel):
            return None
        with self._lock:
            self._tmp = self._tmp or Scratch("run", self._require_profile().user)
            spec = level.machine_spec(self._tmp.path)
        machine = self._machines.of(owner, spec, lambda spec: self._made_machine(level, spec))
        if machine is not None:
            self._connect(machine, owner)
        return machine

    def _connect(self, machine: Machine, owner: object) -> None:
        """Let the proxy serve a machine if there is a list of what may be reached; else see that it does not."""
        entries = self._settings.egress
        if entries is None or machine.listener < 0:
            self._let_go(machine)
            return
        try:
            self._egress.serve(machine.listener, owner, entries, self._granted(owner))
            self._proxy_failed = ""
        except OSError as exc:
            self._proxy_failed = f"the proxy could not be started ({exc.strerror or exc})"

    def _let_go(self, machine: Machine) -> None:
        if machine.listener >= 0:
            self._egress.drop(machine.listener)

    def take_denials(self, owner: object) -> list[str]:
        """What the proxy denied to the commands of a session since the last time, as sentences."""
        if self._settings.egress is None:
            return []
        return [denial.warning for denial in self._egress.take_denials(owner)]

    def missed_network(self, level: Level, machine: Machine | None) -> str:
        """Why a command at a level found no network, and who can change that; empty where it has one."""
        entries = self._settings.egress
        if not level.blocks_network:
            return ""
        if entries is None:
            return "Network is off for commands; only the user can allow it: llmc allow network."
        if why := self._no_proxy(level, machine):
            return f"Commands have no network here: {why}."
        return (
            f"Commands reach {listed(entries)} through a proxy, over http(s) alone, and nothing else; there is no DNS."
            " Only the user can allow more: llmc allow network HOST."
        )

    def _no_proxy(self, level: Level, machine: Machine | None) -> str:
        if level.name == "landlock":
            return "the network allowlist needs the workspace level (bubblewrap)"
        if machine is None:
            return f"the network allowlist needs a machine per session ({self._machines.unavailable[:80] or 'none'})"
        return self._proxy_failed

    @property
    def egress(self) -> Egress:
        """The proxy of this server."""
        return self._egress

    def touch(self, owner: object) -> None:
        """A session is at work: what its commands share stays."""
        self._machines.touch(owner)

    def ready(self, owner: object) -> None:
        """Test the sandbox and make the session's machine, where that is yet to be done: it is no command's time."""
        self.report()
        level = self._level
        if level is not None:
            self.machine(owner, level)

    def _made_machine(self, level: WorkspaceLevel, spec: MachineSpec) -> Machine:
        """A machine in which a first command was seen to run."""
        machine = make_machine(self._launcher, spec)
        folder = os.open("/", os.O_PATH | os.O_CLOEXEC)
        launch = level.launch([b"/bin/true"], folder, machine)
        try:
            with self._started(launch, folder) as child:
                said = b"".join(piece for _, piece in child.streams(lambda: None))
            if child.exit_code != 0:
                raise FeatureUnavailable(said.decode(errors="replace").strip() or "a first command did not run")
        except BaseException:
            machine.close()
            raise
        finally:
            os.close(folder)
        return machine

    def shares(self) -> str:
        """What network and /tmp the commands of a session have, in a few words."""
        level = self.level()
        if level.name == "off":
            return "network, /tmp: the host's"
        network = self._network_in_words(level)
        if level.name == "landlock":
            return f"{network}; TMPDIR: the server's"
        if self._machines.unavailable:
            return f"{network}; /tmp per command ({self._machines.unavailable[:80]})"
        return f"{network}; localhost, /tmp per session" if level.blocks_network else f"{network}; /tmp per session"

    def _network_in_words(self, level: Level) -> str:
        if not level.blocks_network:
            return "network on"
        entries = self._settings.egress
        if entries is None:
            return "no network"
        if level.name == "landlock":
            return "no network (the allowlist needs bubblewrap)"
        if why := self._machines.unavailable or self._proxy_failed:
            return f"no network (no proxy: {why[:80]})"
        return f"network: proxy to {listed(entries)} only"

    def reconfigure(self, settings: SandboxSettings) -> None:
        """Have the next command run by other settings; the strength that is asked for stays."""
        with self._lock:
            self._settings = settings._replace(level=self._settings.level)
            self._forget()
        if settings.egress is None:  # at once: nothing that runs on goes on reaching anybody
            for machine in self._machines.all():
                self._let_go(machine)

    def start(
        self,
        argv: list[bytes],
        cwd: int,
        *,
        level: Level | None = None,
        machine: Machine | None = None,
        stdin: bytes | int | None = None,
        keep: tuple[int, ...] = (),
        env: Mapping[bytes, bytes] | None = None,
        called: bytes = b"",
    ) -> Child:
        """Start a command in the directory `cwd`, at the level in force or another one of this sandbox.

        The descriptors in `keep` stay open in it, numbered from the level's `free_fd`; `env` is added to the
        environment that every command gets. `called` is how its caller names the program, and leads to it, too: it
        is what the program calls itself in messages.
        """
        launch = (level or self.level()).launch(argv, cwd, machine)
        if called and launch.plan.get("wrapped"):
            launch.argv[-len(argv)] = called  # bubblewrap searches the same PATH
        elif called:
            launch.plan["called"] = called
        try:
            return self._started(launch, cwd, stdin=stdin, keep=keep, env=env)
        except ConfinementError as exc:
            raise self.broke(f"{exc.strerror}") from None

    def _started(
        self,
        launch: Launch,
        cwd: int,
        *,
        stdin: bytes | int | None = None,
        keep: tuple[int, ...] = (),
        env: Mapping[bytes, bytes] | None = None,
    ) -> Child:
        plan = launch.plan
        first = 4 + len(launch.fds)
        plan["keep"] = [*plan.get("keep", ()), *range(first, first + len(keep))]
        more_fds = (*launch.fds, *keep)
        if isinstance(stdin, int) and "user" in plan:  # a terminal, which its user must be able to open anew
            os.fchown(stdin, *plan["user"])
        try:
            return Child(
                self._launcher,
                launch.argv,
                cwd=cwd,
                env={**launch.env, **(env or {})},
                plan=plan,
                more_fds=more_fds,
                stdin=stdin,
                status=launch.status,
            )
        finally:
            for fd in launch.fds:
                os.close(fd)

    def another(self, *, read_only: bool = False) -> Level:
        """A level like the one in force, with a temporary folder of its own; the caller closes it.

        With `read_only` nothing outside of that folder can be changed, and there is no network.
        """
        name, profile = self.level().name, self._require_profile()
        return make_level(name, _without_writing(profile) if read_only else profile)

    def exceptions(self) -> dict[str, list[str]]:
        """What of the roots commands can't change or see, by how they find it."""
        profile = self._require_profile()
        found: dict[str, list[str]] = {HIDDEN: [], READ_ONLY: []}
        for path, how in covers(profile).items():
            if how in found:
                found[how].append(path)
        if profile.machine:
            found[HIDDEN] += ["/run", "/sys"]
            found[READ_ONLY] += [*(path for path in SYSTEM_FOLDERS if os.path.isdir(path)), *profile.machine.read_only]
        return {how: places for how, places in found.items() if places}

    @property
    def user(self) -> tuple[int, int] | None:
        """Whom commands run as, if not as the server."""
        return self._require_profile().user

    def _require_profile(self) -> Profile:
        if self._profile is None:
            raise self._unavailable()
        return self._profile

    @property
    def launcher(self) -> Launcher:
        """What starts commands here."""
        return self._launcher

    def broke(self, reason: str) -> FeatureUnavailable:
        """The sandbox failed where it had worked: the same level is tested anew before the next command."""
        with self._lock:
            self._forget()
            selftest.forget(self._data_dir)
        return FeatureUnavailable(
            f"the sandbox could not be set up, so the command was not run: {reason[:300]}",
            hint="llmc doctor tells what is missing.",
        )

    def not_executed(self, program: str, stderr: bytes) -> LlmcError:
        """Why a command never ran; `stderr` is bubblewrap's own, since nothing else ran."""
        message = stderr.decode("utf-8", "replace").strip().removeprefix("bwrap: ")
        if message.startswith("execvp"):
            return NotFound(f"{program}: can't be executed ({message.rpartition(': ')[2]})")
        if message.startswith("Can't chdir"):
            return NotFound("the working directory is gone")
        return self.broke(message)

    @property
    def has_held(self) -> bool:
        """Whether a level was ever seen to hold, here or by another server since the machine was started."""
        return bool(self._held)

    def report(self) -> SandboxReport:
        """What `llmc doctor` and `health` report."""
        with self._lock:
            if self._report is None or self._untested is not None:
                self._choose()
            return cast(SandboxReport, self._report)

    @property
    def counts_processes(self) -> bool:
        """Whether anything bounds the number of a command's processes."""
        return os.getuid() != 0 or bool(self._settings.run_as) or self._own_launcher is not None

    def release_idle(self, idle_s: float) -> bool:
        """Let go of idle machines, and end a proxy and a launcher that were idle for so long; whether there was any."""
        released = self._machines.release_idle()
        ended = self._egress.release_idle(idle_s, self._machines.are_inhabited)
        return (self._own_launcher is not None and self._own_launcher.release_idle(idle_s)) or ended or released

    def close(self) -> None:
        self._machines.close()
        self._egress.close()
        with self._lock:
            self._forget()
            if self._tmp is not None:
                self._tmp.close()
            if self._own_launcher is not None:
                self._own_launcher.close()
            if self._group is not None:
                self._group.close()

    def _answering(self) -> tuple[Root, ...]:
        silent = self._silent()
        return tuple(root for root in self._roots if root.real not in silent) if silent else self._roots

    def _now(self, roots: tuple[Root, ...]) -> object:
        """What the level in force depends on and can change while the server runs."""
        return _stamp(), roots, self._covered.now(self._settings, roots, self._data_dir)

    def _forget(self) -> None:
        if self._level is not None:
            self._level.close()
        self._level = self._report = self._untested = None

    def _choose(self) -> None:
        setting = self._settings.level
        report = SandboxReport("", {}, {}, {})
        self._untested = None
        if setting == "read_only":
            report.reasons["read_only"] = "the operator switched commands off (mcp.sandbox.level)"
        roots = self._answering()
        self._stamp = self._now(roots)
        try:
            profile = make_profile(self._settings, roots, self._data_dir)
            if roots:  # without them there is nothing to commit
                profile = profile._replace(git_config=identity_file(self._launcher, profile))
            self._profile = profile
        except LlmcError as exc:
            report.reasons["every level"] = _why(exc)
            self._report = report
            return
        for name in self._order(profile):
            try:
                self._level = self._verified(name, profile, report)
            except ResourceBusy as exc:  # it may hold, so nothing weaker is tried
                self._untested = exc
                report.reasons[name] = _why(exc)
                break
            except LlmcError as exc:
                report.reasons[name] = _why(exc)
                if self._held:
                    report.reasons[name] += f" {_NOTHING_WEAKER}"
                continue
            report = report._replace(level=name)
            self._held = name
            break
        self._report = report

    def _order(self, profile: Profile) -> tuple[str, ...]:
        """The levels to try, the strongest first."""
        setting = self._settings.level
        if setting != "auto":
            return () if setting == "read_only" else (setting,)
        if not self._held and selftest.held_before("workspace", profile, self._data_dir):
            self._held = "workspace"
        return (self._held,) if self._held else ("workspace", "landlock")

    def _verified(self, name: str, profile: Profile, report: SandboxReport) -> Level:
        if name != "off":
            outcome = selftest.run(self._launcher, name, profile, self._data_dir)
            report.held[name], report.not_held[name] = outcome.held, outcome.not_held
            if broken := outcome.broken(name, network=self._settings.network):
                raise FeatureUnavailable(f"its self-test failed: {', '.join(broken)}")
        return make_level(name, profile)

    def _unavailable(self) -> FeatureUnavailable:
        reasons = self._report.reasons if self._report else {}
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        return FeatureUnavailable(
            f"commands are not available, because nothing would confine them. {why}",
            hint="llmc doctor tells what is missing and how to get it.",
        )


def listed(entries: tuple[str, ...]) -> str:
    """A list of hosts in a few words."""
    if not entries:
        return "no host"
    more = len(entries) - _LISTED
    return ", ".join(entries[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _without_writing(profile: Profile) -> Profile:
    readable = (*profile.read_only, *profile.changeable)
    settings = profile.settings._replace(network=False, egress=None)
    return profile._replace(settings=settings, roots=(), writable=(), read_only=readable)


def _why(exc: LlmcError) -> str:
    return f"{exc.message}. {exc.hint or ''}".strip()


def _stamp() -> object:
    """What a self-test's outcome depends on and can change while the server runs: the program it tested."""
    try:
        return selftest.identity(find_bubblewrap())
    except (LlmcError, OSError):
        return None
