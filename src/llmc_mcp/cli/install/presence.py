"""Whether a client is on this machine: what `llmc install` itself wrote is no sign of it."""

import os
import shutil
from typing import Any, cast

from . import jsonc, toml, yaml
from .client_file import read
from .clients import SERVER, Client
from .permissions import is_only_preference

_LOOKED_AT = 200  # files of a folder that are read to find one that is not ours


def is_here(client: Client) -> bool:
    """Whether its program is on the PATH, or one of its files is there that llmc did not write."""
    if client.program and shutil.which(client.program):
        return True
    return any(map(_is_sign, client.signs()))


def _is_sign(path: str) -> bool:
    if os.path.isfile(path):
        return not _is_ours(path)
    looked = 0
    for folder, _, names in os.walk(path):
        for name in names:
            looked += 1
            if looked > _LOOKED_AT or not _is_ours(os.path.join(folder, name)):
                return True
    return False


def _is_ours(path: str) -> bool:
    """Whether nothing is in a file but what we put there."""
    if ".llmc-" in os.path.basename(path) and path.endswith(".bak"):
        return True
    if not path.endswith((".json", ".jsonc", ".toml", ".yaml", ".md", ".goosehints")):
        return False
    try:
        text = read(path).text or ""
        if path.endswith((".md", ".goosehints")):
            return is_only_preference(text)
        found = (
            toml.parse(text)
            if path.endswith(".toml")
            else yaml.parse(text)
            if path.endswith(".yaml")
            else jsonc.parse(text, comments=True).value
        )
    except Exception:  # noqa: BLE001 - what can't be read is somebody else's
        return False
    return _holds_ours(found) and not _without_ours(found)


def _holds_ours(value: Any) -> bool:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return any(_is_our_name(name) or _holds_ours(below) for name, below in members.items())
    if isinstance(value, list):
        return any(map(_holds_ours, cast("list[Any]", value)))
    return isinstance(value, str) and _is_our_name(value)


def _without_ours(value: Any) -> Any:
    """A value without our entries and rules, and without what is empty then."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        kept = {name: _without_ours(below) for name, below in members.items() if not _is_our_name(name)}
        return None if _is_our_hook(members) else {name: below for name, below in kept.items() if below}
    if isinstance(value, list):
        return [below for below in map(_without_ours, cast("list[Any]", value)) if below]
    return None if isinstance(value, str) and _is_our_name(value) else value


def _is_our_name(name: str) -> bool:
    return name in (SERVER, f"{SERVER}_*", f"mcp__{SERVER}", f"{SERVER}:*") or name.startswith(f"mcp:{SERVER}:")


def _is_our_hook(members: dict[str, Any]) -> bool:
    """Whether an object is a group of hooks that holds nothing but `te --hook`."""
    hooks = cast("list[Any]", members.get("hooks") if isinstance(members.get("hooks"), list) else [])
    return bool(hooks) and all(
        isinstance(hook, dict) and str(cast("dict[str, Any]", hook).get("command", "")).endswith("te --hook")
        for hook in hooks
    )
