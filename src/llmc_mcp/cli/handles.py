"""`llmc handles`: what earlier replies left behind, for a person."""

import os
import sys
import time

from ..config.load import load
from ..files.handles import Handle, Handles, policy_from
from ..printing import print_bytes, print_json, print_line
from ..store.root_sets import folder_of, paths_of
from ..store.sqlite import Store

_USAGE = """\
usage: llmc handles [--json]      list your handles, newest first
       llmc handles ID            print what a handle holds

A reply that was cut, a search, a command's output: what did not fit is kept under a handle for a while.
"""


def command(arguments: list[str]) -> int:
    """List handles, or print one."""
    if arguments in (["-h"], ["--help"]):
        print(_USAGE, end="")
        return 0
    loaded = load()
    handles, principal = Handles(Store(loaded.data_dir), policy_from(loaded.config), None), f"uid:{os.getuid()}"
    if arguments in ([], ["--json"]):
        _list(handles.list(principal), as_json=bool(arguments))
        return 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(_USAGE, end="", file=sys.stderr)
        return 2
    return _print(handles, handles.find(principal, arguments[0]))


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
