"""What this machine offers the server, what it lacks, and how to get it: the findings of `llmc doctor`."""

import os
import socket
import sys
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ..app import App
from ..config.load import LoadedConfig
from ..errors import LlmcError
from ..policy import is_below_any

_OLDEST_PYTHON = (3, 11)
_LINKS_LOOKED_AT = 500  # of one folder

# What each attempt of the sandbox's self-test tries to do.
_ATTEMPTS = {
    "write_outside": "write a file outside the roots",
    "read_outside": "read a file outside the roots",
    "truncate_outside": "empty a file outside the roots",
    "list_outside": "list a folder outside the roots",
    "change_mode_outside": "change the mode of a file outside the roots",
    "set_user_id": "make a program that runs as its owner",
    "connect_tcp": "reach a TCP port of this machine",
    "send_udp": "reach a UDP port of this machine",
    "connect_unix": "reach a unix socket outside the roots",
    "connect_abstract": "reach an abstract unix socket",
    "read_server_environment": "read the server's environment",
    "signal_server": "send the server a signal",
    "enter_other_namespace": "make a user namespace",
    "write_kernel_settings": "open a kernel setting for writing",
    "read_shadow": "read /etc/shadow",
}


class Check(NamedTuple):
    """The result of one check; `fix` says what to do where it is not ok."""

    topic: str
    state: str  # ok, missing or broken
    message: str
    fix: str = ""
    details: tuple[str, ...] = ()


def findings(loaded: LoadedConfig) -> Iterator[Check]:
    """All checks, from the kernel up."""
    yield _python()
    yield from _kernel()
    try:
        app = App(loaded.config, loaded.roots, loaded.data_dir, loaded.files, loaded.trusted_files)
    except LlmcError as exc:
        yield Check("roots", "broken", exc.message, exc.hint or "Name a folder that exists: --root DIR.")
        return
    try:
        yield from findings_on(app)
        yield _port(app)
    finally:
        app.close()


def findings_on(app: App) -> Iterator[Check]:
    """The checks of an app, from its roots up."""
    yield Check("roots", "ok", ", ".join(root.shown for root in app.files.roots))
    yield from _own_code(app)
    yield _ripgrep()
    yield from _sandbox(app)
    yield _toolchains(app)
    yield _code(app)
    yield _data_directory(app)


def findings_of_server(app: App) -> list[Check]:
    """All checks of a running server; its port is its own."""
    return [_python(), *_kernel(), *findings_on(app)]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _OLDEST_PYTHON:
        return Check("python", "broken", version, "Install Python 3.11 or newer and the server into it.")
    return Check("python", "ok", f"{version} at {sys.executable}")


def _kernel() -> Iterator[Check]:
    from ..kernel import seccomp, syscalls

    release = os.uname().release
    if reason := syscalls.missing_openat2():
        yield Check("openat2", "broken", reason, "Linux 5.6 or newer; in a container, a profile that allows it.")
    else:
        yield Check("openat2", "ok", f"Linux {release} holds file access beneath the roots")
    abi = syscalls.landlock_abi()
    if abi == 0:
        fix = "Linux 5.13 or newer with landlock in its list of security modules (kernel parameter lsm=landlock,…)."
        yield Check("landlock", "broken", f"Linux {release} offers none: no search, no landlock level", fix)
    elif abi < 6:
        fix = "Linux 6.12 or newer, or bubblewrap, which does not need it."
        lacks = (
            "commands at the landlock level could signal the user's processes" if abi >= 3 else "too old for commands"
        )
        yield Check("landlock", "missing", f"ABI {abi}: {lacks}", fix)
    else:
        yield Check("landlock", "ok", f"ABI {abi}")
    if seccomp.supported():
        yield Check("seccomp", "ok", f"a filter for {os.uname().machine}")
    else:
        yield Check("seccomp", "broken", f"no filter for {os.uname().machine}", "Commands need x86_64 or aarch64.")


def _own_code(app: App) -> Iterator[Check]:
    if kept := app.files.own_code:
        fix = "Serve a folder without it, or install the server elsewhere: pipx install, uv tool install."
        message = "the server's own code lies in a root: no tool changes it, commands see it read-only"
        yield Check("own code", "missing", message, fix, kept)


def _ripgrep() -> Check:
    from ..files.ripgrep import find_ripgrep

    try:
        return Check("ripgrep", "ok", os.fsdecode(find_ripgrep()))
    except LlmcError as exc:
        return Check("ripgrep", "broken", exc.message, exc.hint or "")


def _toolchains(app: App) -> Check:
    """The toolchains in the home, and what of the user's own PATH commands do not see."""
    from ..sandbox.profile import program_folders, search_path, settings_from, toolchains_of

    settings = settings_from(app.config)
    found = ", ".join(toolchain.name for toolchain in toolchains_of(settings)) or "none in the home"
    searched = {os.path.realpath(folder) for folder in search_path(settings)}
    seen = program_folders(settings, tuple(app.files.roots))
    details = [
        f"on your PATH, but not on that of commands: {folder}"
        for folder in dict.fromkeys(os.environ.get("PATH", "").split(":"))
        if os.path.isdir(folder) and os.path.realpath(folder) not in searched
    ]
    details += [
        f"leads to what commands can't see: {entry.path}"
        for folder in searched
        if is_below_any(folder, [os.path.expanduser("~")])
        for entry in islice(os.scandir(folder), _LINKS_LOOKED_AT)
        if entry.is_symlink() and not is_below_any(os.path.realpath(entry.path), seen)
    ]
    fix = "Name it in mcp.sandbox.toolchains (a list replaces auto), or: llmc allow dir DIR." if details else ""
    return Check("toolchains", "missing" if details else "ok", found, fix, tuple(details))


def _sandbox(app: App) -> Iterator[Check]:
    report = app.sandbox.report()
    for level, reason in report.reasons.items():
        weaker = bool(report.level)
        yield Check("sandbox", "missing" if weaker else "broken", f"{level}: {reason}", _how_to_raise(level, reason))
    if not report.level:
        yield Check("commands", "broken", "unavailable: nothing would confine them", "Fix one of the levels above.")
        return
    if report.level == "off":
        yield Check("commands", "missing", "run unconfined", 'Set mcp.sandbox.level="auto".')
        return
    held = report.held.get(report.level, [])
    open_doors = report.not_held.get(report.level, [])
    details = [f"prevented: {_ATTEMPTS[name]}" for name in held]
    details += [f"NOT prevented: {_ATTEMPTS[name]}" for name in open_doors]
    message = f"run at level {report.level}; {len(held)} of {len(held) + len(open_doors)} attempts prevented"
    fix = "The level workspace prevents the rest." if open_doors and report.level == "landlock" else ""
    yield Check("commands", "ok", message, fix, tuple(details))
    yield _network(app, report.level)
    machine = any(root.real == b"/" for root in app.files.roots)  # there commands have no unix sockets
    if report.level == "workspace" and not machine and (sockets := _sockets_in_roots(app)):
        fix = 'Have them made elsewhere ($XDG_RUNTIME_DIR), or set mcp.sandbox.level="landlock": it allows no sockets.'
        message = "commands can reach unix sockets that lie in a root, with the network off as well"
        yield Check("sockets", "missing", message, fix, tuple(sockets))
    if not app.sandbox.counts_processes:
        fix = "Run the server as an ordinary user, or set mcp.sandbox.run_as."
        yield Check("processes", "missing", "nothing counts the processes of root's commands", fix)


def _network(app: App, level: str) -> Check:
    mode = app.config.network()
    if mode != "allowlist":
        return Check("network", "ok", f"{mode} for commands; llmc allow network HOST lets them reach a host")
    if level == "landlock":
        fix = "Install the package bubblewrap: the allowlist needs a network namespace per session."
        return Check("network", "missing", "off for commands: the allowlist is not offered at level landlock", fix)
    details = tuple(app.config.tools.network_allow)
    return Check("network", "ok", "an allowlist, through a proxy; https, http and SOCKS5, no DNS, no ssh", "", details)


def _sockets_in_roots(app: App) -> list[str]:
    """The unix sockets in the roots that a process listens on, by path."""
    roots = [os.fsdecode(path) for root in app.files.roots for path in (root.path, root.real)]
    with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as table:
        paths = {row.rstrip("\n").split(" ", 7)[-1] for row in table if " /" in row}
    return sorted(path for path in paths if is_below_any(path, roots) and not app.files.is_secret(path))


def _code(app: App) -> Check:
    try:
        return Check("code", "ok", f"execute_code runs in {app.code.warm()}")
    except LlmcError as exc:
        return Check("code", "broken", exc.message, exc.hint or "")


def _how_to_raise(level: str, reason: str) -> str:
    if "could not be tested now" in reason:
        return "Run llmc doctor again when the machine is less busy."
    if "run_as" in reason:
        return "Set mcp.sandbox.run_as to an ordinary user, or run the server as one."
    if level not in ("workspace", "landlock") or "root" in reason:
        return ""  # the reason says what to do
    if level == "workspace" and "not installed" in reason:
        return "apt install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora), pacman -S bubblewrap (Arch)."
    if level == "workspace" and _in_container():
        return "Let the container make user namespaces, and mount a whole /proc: DOCS/deploy.md, Container."
    if level == "workspace":
        return (
            "Allow unprivileged user namespaces: sysctl user.max_user_namespaces=10000, and on Ubuntu an AppArmor "
            "profile for bwrap or sysctl kernel.apparmor_restrict_unprivileged_userns=0."
        )
    return "Linux 6.2 or newer with Landlock; a container must not forbid it."


def _in_container() -> bool:
    """Docker creates a file, podman and systemd-nspawn set a variable."""
    return os.path.exists("/.dockerenv") or "container" in os.environ


def _data_directory(app: App) -> Check:
    try:
        app.store.probe()
        name = app.store.name
    except LlmcError as exc:
        return Check("store", "broken", exc.message, exc.hint or "Set LLMC_DATA_DIR to a folder of your own.")
    return Check("store", "ok", name)


def _port(app: App) -> Check:
    server = app.config.server
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((server.host, server.port))
        except OSError as exc:
            fix = "Only HTTP needs it: choose another with --port."
            return Check("port", "missing", f"{server.host}:{server.port} can't be used ({exc.strerror})", fix)
    return Check("port", "ok", f"{server.host}:{server.port} is free for HTTP")
