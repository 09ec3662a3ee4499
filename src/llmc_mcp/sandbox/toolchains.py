"""Toolchains in the user's home: compilers, interpreters and programs that are not the system's.

Only the folders that hold programs are shown to commands, read-only: what lies beside them (`.cargo/credentials.toml`,
`.npmrc`, uv's credentials) is not there. Settings that an installation itself may hold, such as pip.conf with the
password of an index, are hidden.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

AUTO, NONE = "auto", "none"

_MOST_VERSIONS = 100  # of one toolchain that are looked into
_DIGITS = re.compile(r"\d+")


class Toolchain(NamedTuple):
    """A toolchain that was found: where its programs lie, and what commands have to see for them to work."""

    name: str
    bins: tuple[str, ...]
    shown: tuple[str, ...]
    secrets: tuple[str, ...] = ()  # inside of what is shown
    env: tuple[tuple[str, str], ...] = ()


class _Kind(NamedTuple):
    """Where a toolchain lies below a home. `installed` are folders with one installation in each of their folders."""

    bins: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    installed: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


# In the order in which they are searched where the user's PATH does not say.
_KINDS = {
    "pyenv": _Kind(
        (".pyenv/plugins/pyenv-virtualenv/shims", ".pyenv/shims", ".pyenv/bin"),
        (".pyenv/libexec", ".pyenv/pyenv.d", ".pyenv/plugins", ".pyenv/version"),
        (".pyenv/versions",),
        (("PYENV_ROOT", ".pyenv"),),
    ),
    "nvm": _Kind(installed=(".nvm/versions/node",)),
    "rustup": _Kind(
        (), (".rustup/toolchains", ".rustup/settings.toml", ".rustup/update-hashes"), env=(("RUSTUP_HOME", ".rustup"),)
    ),
    "cargo": _Kind((".cargo/bin",)),
    "go": _Kind(("go/bin", ".local/go/bin"), (".local/go",)),
    "uv": _Kind(installed=(".local/share/uv/python", ".local/share/uv/tools")),
    "pipx": _Kind(installed=(".local/share/pipx/venvs", ".local/pipx/venvs")),
    "programs": _Kind((".local/bin",)),
}
_SETTINGS_INSIDE = ("pip.conf", "etc/npmrc", "etc/pip.conf")  # of one installation


def find_toolchains(setting: str | tuple[str, ...], home: str) -> tuple[Toolchain, ...]:
    """The toolchains to show: those in a home (`auto`), none, or the folders that the operator named."""
    if isinstance(setting, tuple):
        return tuple(_named(os.path.abspath(os.path.expanduser(path))) for path in setting if path)
    if setting == NONE:
        return ()
    return tuple(found for name, kind in _KINDS.items() if (found := _found(name, kind, os.path.realpath(home))))


def candidates_for(setting: str | tuple[str, ...], home: str) -> list[str]:
    """Every path that `find_toolchains` looks for, whether it exists or not."""
    if isinstance(setting, tuple):
        installations = [os.path.abspath(os.path.expanduser(path)) for path in setting if path]
        paths = installations
    elif setting == NONE:
        return []
    else:
        real = os.path.realpath(home)
        kinds = _KINDS.values()
        paths = [os.path.join(real, path) for kind in kinds for path in (*kind.bins, *kind.shown, *kind.installed)]
        installed = [os.path.join(real, path) for kind in kinds for path in kind.installed]
        installations = [version for folder in installed for version in _versions(folder)]
    return [*paths, *(os.path.join(path, name) for path in installations for name in _SETTINGS_INSIDE)]


def programs_path(toolchains: Iterable[Toolchain], system: tuple[str, ...], users_path: str) -> tuple[str, ...]:
    """Where programs are searched: toolchains ahead of the system, in the order of the user's own PATH.

    One that the user has behind the system's folders stays there; one that is not on it comes after those that are.
    """
    bins = list(dict.fromkeys(folder for toolchain in toolchains for folder in toolchain.bins))
    listed = [os.path.realpath(folder) for folder in users_path.split(":") if folder]
    first_of_system = min(
        (listed.index(folder) for folder in map(os.path.realpath, system) if folder in listed), default=len(listed)
    )
    position = {folder: listed.index(os.path.realpath(folder)) for folder in bins if os.path.realpath(folder) in listed}
    ahead = [folder for folder in bins if position.get(folder, first_of_system) <= first_of_system]
    behind = [folder for folder in bins if folder not in ahead]
    ahead.sort(key=lambda folder: position.get(folder, first_of_system))
    behind.sort(key=lambda folder: position[folder])
    return (*ahead, *system, *behind)


def _found(name: str, kind: _Kind, home: str) -> Toolchain | None:
    bins = _existing(home, kind.bins)
    installed = _existing(home, kind.installed)
    shown = (*bins, *_existing(home, kind.shown), *installed)
    if not shown:
        return None
    if name == "nvm":
        bins = _chosen_node(home, installed[0])
    env = tuple((variable, os.path.join(home, folder)) for variable, folder in kind.env)
    return Toolchain(name, bins, _outermost(shown), tuple(_settings_inside(installed)), env)


def _named(path: str) -> Toolchain:
    below = os.path.join(path, "bin")
    bins = below if os.path.isdir(below) else path
    return Toolchain(path, (bins,), (path,), tuple(_settings_of(path)))


def _existing(home: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Those that exist, and are no way out of the home: a link to elsewhere is for the operator to name."""
    full = [os.path.join(home, path) for path in paths]
    return tuple(path for path in full if os.path.exists(path) and os.path.realpath(path) == path)


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    found = sorted(set(paths))
    return tuple(path for path in found if not any(path.startswith(f"{other}/") for other in found))


def _versions(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder), key=lambda name: [int(part) for part in _DIGITS.findall(name)])
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names[-_MOST_VERSIONS:]]


def _settings_inside(installed: Iterable[str]) -> Iterator[str]:
    for folder in installed:
        for version in _versions(folder):
            yield from _settings_of(version)


def _settings_of(installation: str) -> list[str]:
    return [path for name in _SETTINGS_INSIDE if os.path.isfile(path := os.path.join(installation, name))]


def _chosen_node(home: str, versions: str) -> tuple[str, ...]:
    """The bin of the default version, as far as its name tells; otherwise of the newest."""
    found = _versions(versions)
    try:
        with open(os.path.join(home, ".nvm/alias/default")) as file:
            wanted = f"v{file.read(64).strip().removeprefix('v')}"
    except (OSError, UnicodeDecodeError):
        wanted = ""
    matching = [path for path in found if wanted and f"{os.path.basename(path)}.".startswith(f"{wanted}.")]
    return tuple(os.path.join(path, "bin") for path in (matching or found)[-1:])
