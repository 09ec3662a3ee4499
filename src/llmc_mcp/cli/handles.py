"""`llmc handles`: what earlier replies left behind, for a person."""

import os
import sys
import time

from ..command_line import JSON, Arguments, Positional, UsageError, declare
from ..config.load import load
from ..files.handles import Handle, Handles, policy_from
from ..printing import print_bytes, print_json, print_line
from ..store.opening import store_of
from ..store.root_keys import paths_of
from ..store.root_sets import folder_of


@declare(
    "handles",
    "Lists your handles, newest first, or prints what one holds. What does not fit into a reply (a search, a command's"
    " output) is kept under a handle for a while.",
    positionals=(Positional("ID", "print what this handle holds", required=False),),
    flags=(JSON,),
)
def command(given: Arguments) -> int:
    """List handles, or print one."""
    handle_id = given.first()
    if handle_id and "--json" in given:
        raise UsageError("--json is for the list")
    loaded = load()
    store, principal = store_of(loaded.config.store, loaded.data_dir), f"uid:{os.getuid()}"
    handles = Handles(store, policy_from(loaded.config), None)
    if handle_id:
        return _print(handles, handles.find(principal, handle_id))
    _list(handles.list(principal), as_json="--json" in given)
    return 0


def _list(found: list[Handle], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "id": handle.id,
                "kind": handle.kind,
                "created_iso": _iso(handle),
                "bytes": handle.size,
                "lines": handle.lines,
                "meta": handle.meta,
                "roots": paths_of(handle.roots),
            }
            for handle in found
        ]
        print_json(rows)
        return
    for handle in found:
        source = handle.meta.get("path") or handle.meta.get("root") or handle.meta.get("command") or ""
        made = f"{handle.id:44} {_iso(handle)} {handle.size:>12,} bytes  {handle.kind:14} {source}"
        print_line(f"{made}  [{folder_of(handle.roots)}]")
    if not found:
        print("no handles", file=sys.stderr)


def _print(handles: Handles, handle: Handle) -> int:
    if handle.payload is None:
        print_line(f"{handle.id} refers to {handle.meta['path']}: read that", sys.stderr)
        return 1
    fd = handles.open(handle)
    try:
        while piece := os.read(fd, 1 << 18):
            print_bytes(piece)
    finally:
        os.close(fd)
    return 0


def _iso(handle: Handle) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(handle.created_at))
