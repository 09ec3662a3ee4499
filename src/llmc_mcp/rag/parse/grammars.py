"""Unpack the grammars from their wheel in one pass: one by one, each would read the whole archive.

The server unpacks them before it starts an indexing process: that process parses hostile files, so it must not be able
to write what it runs.
"""

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable, Mapping

import msgspec

CACHE = "SEMBLE_GRAMMARS_CACHE_DIR"  # the wheel looks for what is unpacked there first
_METADATA = re.compile(r"semble_grammars-([^-]+)\.dist-info")
_ALIASES = {"terraform": "hcl", "zsh": "bash", "embeddedtemplate": "embedded_template"}
_MACHINES = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "x86_64", "amd64": "x86_64"}


class _Grammar(msgspec.Struct):
    file: str
    sha256: str


class _Manifest(msgspec.Struct):
    archive: str
    languages: dict[str, _Grammar]


def unpack(data_dir: str, languages: Iterable[str] | None = None) -> str:
    """Unpack grammars (by default all that the index uses) and return their folder; OSError if that fails."""
    from .languages import PARSED

    wheel = _wheel()
    place = os.path.join(data_dir, "grammars", _version(wheel))
    machine = f"linux-{_MACHINES.get(os.uname().machine.lower(), 'unknown')}"
    archive = os.path.join(wheel, "grammars", machine)
    with open(os.path.join(archive, "manifest.json"), "rb") as file:
        manifest = msgspec.json.decode(file.read(), type=_Manifest)
    known = manifest.languages
    wanted = {
        entry.file: entry.sha256
        for name in languages or PARSED
        if (entry := known.get(_ALIASES.get(name, name))) is not None
    }
    folder = os.path.join(place, machine)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    missing = {name for name in wanted if not os.path.exists(os.path.join(folder, name))}
    if missing:
        _extract(os.path.join(archive, manifest.archive), folder, {name: wanted[name] for name in missing})
    return place


def _extract(archive: str, folder: str, wanted: Mapping[str, str]) -> None:
    import tarfile  # only the first server on a machine needs it

    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            if member.name in wanted:
                source = tar.extractfile(member)
                _put(folder, member.name, source.read() if source else b"", wanted[member.name])


def _version(wheel: str) -> str:
    """The version of the wheel, from the name of the folder beside it: importlib.metadata costs 2 MB for good."""
    for name in os.listdir(os.path.dirname(wheel)):
        if found := _METADATA.fullmatch(name):
            return found[1]
    from importlib.metadata import version

    return version("semble-grammars")


def _wheel() -> str:
    spec = importlib.util.find_spec("semble_grammars")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(2, "the semble-grammars wheel is not installed")
    return os.path.dirname(spec.origin)


def _put(folder: str, name: str, data: bytes, sha256: str) -> None:
    """Write atomically: several servers may do this at once."""
    import tempfile

    if hashlib.sha256(data).hexdigest() != sha256:
        raise OSError(5, f"{name} in the grammars' archive is not what it should be")
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".", delete=False) as file:
        file.write(data)
    os.chmod(file.name, 0o500)
    os.rename(file.name, os.path.join(folder, name))
