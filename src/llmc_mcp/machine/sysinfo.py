"""The state of the machine: load, memory, disks, services, logs."""

import os
import re
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import psutil

from ..errors import FeatureUnavailable, InvalidArgument
from ..kernel.child import Child
from ..kernel.launcher import Launcher
from ..kernel.limits import own_plan

_SAMPLE_S = 0.15  # CPU use is measured over this interval, or since the last sample …
_SAMPLE_AGE_S = 30.0  # … if that is no older than this
_DISKS = 4
_FULL_BY_NATURE = frozenset({"squashfs", "iso9660", "udf", "cramfs", "erofs"})
_SYSTEMD_RUNS = "/run/systemd/system"
_JOURNALS = ("/run/log/journal", "/var/log/journal")
_PLAIN_LOGS = ("/var/log/syslog", "/var/log/messages")
_LOG_BYTES = 4 << 20
_HELPER_TIMEOUT_S = 10.0

# System programs that run outside the sandbox, always with arguments that the server chooses: they talk to services
# that can't be reached from inside a sandbox. This is the complete list.
_UNITS = ["list-units", "--no-pager", "--no-legend", "--plain", "--full"]
_HELPERS = {
    "services": ("systemctl", [*_UNITS, "--type=service", "--state=running"]),
    "failed": ("systemctl", [*_UNITS, "--state=failed"]),
    "logs": ("journalctl", ["--no-pager", "--quiet", "--output=short-iso"]),
}
_HELPER_PATH = ("/usr/bin", "/bin")
_PLAIN_WORDS = re.compile(r"[\w@:.\\ +,/-]{1,120}")


class Disk(NamedTuple):
    """A file system with a size of its own."""

    mount: str
    used_percent: float


class Snapshot(NamedTuple):
    """The state of the machine at one moment."""

    cpu_percent: float
    load_avg: tuple[float, float, float]
    mem_used_mb: int
    mem_total_mb: int
    disks: list[Disk]


class Service(NamedTuple):
    """A running service."""

    name: str
    description: str


class Logs(NamedTuple):
    """The end of a log, and its source."""

    content: str
    source: str


class SystemInfo:
    """Samples the machine; one instance per server. `at` is a prefix for the paths of system files."""

    def __init__(self, launcher: Launcher, at: str = "") -> None:
        self._launcher, self._at = launcher, at
        self._lock = threading.Lock()
        self._sampled_at = float("-inf")
        self._last = (0.0, 0.0)

    def snapshot(self, check: Callable[[], None]) -> Snapshot:
        """Sample CPU use, load, memory, and how full the disks are."""
        check()
        cpu = self._cpu_percent()
        one, five, fifteen = (round(value, 2) for value in os.getloadavg())
        memory = psutil.virtual_memory()
        return Snapshot(cpu, (one, five, fifteen), memory.used >> 20, memory.total >> 20, _disks())

    def _cpu_percent(self) -> float:
        """Return the busy share of all cores since the last sample, or over a short interval without a recent one."""
        with self._lock:
            if not _SAMPLE_S <= time.monotonic() - self._sampled_at <= _SAMPLE_AGE_S:
                self._last = _busy_and_all()
                time.sleep(_SAMPLE_S)
            before, self._last = self._last, _busy_and_all()
            self._sampled_at = time.monotonic()
            busy, everything = (now - then for now, then in zip(self._last, before, strict=True))
        return round(min(max(busy / everything, 0.0), 1.0) * 100, 1) if everything > 0 else 0.0

    def services(self, check: Callable[[], None]) -> list[Service]:
        """Return the running services, as systemd lists them."""
        if not os.path.isdir(self._at + _SYSTEMD_RUNS):
            raise FeatureUnavailable("services can't be listed: this machine does not run systemd")
        text = self._helper("services", [], check)
        services: list[Service] = []
        for line in text.splitlines():
            words = line.split(None, 4)  # unit, load, active, sub, description
            if len(words) >= 4 and words[0].endswith(".service"):
                name = words[0].removesuffix(".service")
                services.append(Service(name, words[4] if len(words) == 5 else ""))
        return services

    def failed_units(self, check: Callable[[], None]) -> list[str]:
        """Return the units that failed; none without systemd."""
        if not os.path.isdir(self._at + _SYSTEMD_RUNS):
            return []
        try:
            return [line.split()[0] for line in self._helper("failed", [], check).splitlines() if line.strip()]
        except FeatureUnavailable:
            return []

    def logs(self, lines: int, unit: str | None, since: str | None, check: Callable[[], None]) -> Logs:
        """Return the last lines of the journal or, without one, of the plain system log."""
        for name, value in (("unit", unit), ("since", since)):
            if value is not None and not _PLAIN_WORDS.fullmatch(value):
                raise InvalidArgument(f"{name}: {value[:60]!r} is neither a unit nor a time")
        if any(os.path.isdir(self._at + folder) for folder in _JOURNALS):
            options = [f"--lines={lines}"]
            options += [f"--unit={unit}"] if unit else []
            options += [f"--since={since}"] if since else []
            text = self._helper("logs", options, check)
            if text or unit or since:
                return Logs(text, "journald")  # an empty journal may mean that another logger is in use
        elif unit or since:
            raise FeatureUnavailable("there is no journal here, and filtering by unit or time needs one")
        for path in _PLAIN_LOGS:
            try:
                return Logs(_tail(self._at + path, lines), path)
            except FileNotFoundError:
                continue
            except OSError as exc:
                raise FeatureUnavailable(f"{path}: {(exc.strerror or 'unreadable').lower()}") from None
        raise FeatureUnavailable("there is no journal and no system log here")

    def _helper(self, task: str, more: list[str], check: Callable[[], None]) -> str:
        """Run a helper and return its output."""
        name, options = _HELPERS[task]
        paths = [os.path.join(self._at + folder, name) for folder in _HELPER_PATH]
        program = next((path for path in paths if os.access(path, os.X_OK)), None)
        if program is None:
            raise FeatureUnavailable(f"{name} is not installed")
        argv = [os.fsencode(word) for word in (program, *options, *more)]
        env = {b"PATH": b"/usr/bin:/bin", b"LANG": b"C.UTF-8", b"SYSTEMD_COLORS": b"0", b"SYSTEMD_PAGER": b""}
        deadline = time.monotonic() + _HELPER_TIMEOUT_S

        def check_deadline() -> None:
            check()
            if time.monotonic() > deadline:
                raise FeatureUnavailable(f"{name} did not answer")

        cwd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with Child(self._launcher, argv, cwd=cwd, env=env, plan=own_plan({"supervised": True})) as child:
                kept = b""
                for piece in child.output(check_deadline):
                    kept = (kept + piece)[-_LOG_BYTES:]
        except OSError as exc:
            raise FeatureUnavailable(f"{name} could not be started ({exc.strerror})") from None
        finally:
            os.close(cwd)
        if child.exit_code != 0:
            error = child.stderr.decode("utf-8", "replace").strip() or f"exit code {child.exit_code}"
            raise FeatureUnavailable(f"{name} failed: {error[:300]}")
        return kept.decode("utf-8", "replace")


def _busy_and_all() -> tuple[float, float]:
    """Return the seconds that the cores were busy, and all their seconds, since boot."""
    times = psutil.cpu_times()
    everything = sum(times[:8])  # the guest times that follow are already included in the user times
    return everything - times.idle - times.iowait, everything


def summary(state: Snapshot) -> str:
    """Return the snapshot as one line."""
    load = "/".join(f"{value:.2f}" for value in state.load_avg)
    memory = f"RAM {state.mem_used_mb / 1024:.1f}/{state.mem_total_mb / 1024:.1f} GB"
    disks = [f"{disk.mount} {disk.used_percent:.0f}% used" for disk in state.disks[:1]]
    return ", ".join([f"CPU {state.cpu_percent:.0f}%", f"load {load}", memory, *disks])


def _disks() -> list[Disk]:
    """Return mounts backed by a disk, each disk once, / first and then the fullest.

    The root is always included: in a container it is an overlay, which no list of disks contains.
    """
    mounts = {"/": ""} | {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=False)}
    disks: dict[int, Disk] = {}
    for mount in sorted(mounts, key=len):
        if mounts[mount] in _FULL_BY_NATURE or not os.path.isdir(mount):
            continue
        try:
            device = os.stat(mount).st_dev
            if device not in disks:
                disks[device] = Disk(mount, float(psutil.disk_usage(mount).percent))
        except OSError:
            continue  # not accessible
    rest = sorted((disk for disk in disks.values() if disk.mount != "/"), key=lambda disk: -disk.used_percent)
    return [disk for disk in disks.values() if disk.mount == "/"] + rest[: _DISKS - 1]


def _tail(path: str, lines: int) -> str:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _LOG_BYTES, 0))
        kept = file.read(_LOG_BYTES).splitlines(keepends=True)
    if size > _LOG_BYTES:
        kept = kept[1:]  # the first line may be incomplete
    return b"".join(kept[-lines:]).decode("utf-8", "replace")
