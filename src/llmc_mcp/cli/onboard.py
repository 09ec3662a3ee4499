"""`llmc onboard`: the onboarding flows for a person."""

import os
import sys
from typing import cast

from ..config.load import load
from ..errors import InvalidArgument
from ..gate.log import correlation_id
from ..machine.downloads import downloads_folder
from ..printing import print_json, print_lines
from ..server import build
from ..session import Session
from ..tools.linux_ops.onboarding import FLOWS, FlowReport, as_text

_USAGE = """\
usage: llmc onboard FLOW [FOLDER] [--apply] [--json]

  organize_downloads   how the loose files of FOLDER (default: your downloads) would be sorted; --apply moves them,
                       and llmc undo takes all of it back
  explain_repo         what the repository in FOLDER (default: here) is, where it starts, how it is run and tested
  system_health        how this machine does, what is out of the ordinary and why that matters
"""
_FLAGS = ("--apply", "--json")


def command(arguments: list[str]) -> int:
    """Run a flow and print its report."""
    if "-h" in arguments or "--help" in arguments:
        print(_USAGE, end="")
        return 0
    words = [word for word in arguments if not word.startswith("-")]
    unknown = [word for word in arguments if word.startswith("-") and word not in _FLAGS]
    if unknown or not 1 <= len(words) <= 2:
        print(_USAGE, end="", file=sys.stderr)
        return 2
    flow, folder = words[0], words[1] if len(words) > 1 else None
    if flow not in FLOWS:
        raise InvalidArgument(f"there is no flow {flow!r}", hint=f"Flows: {', '.join(FLOWS)}.")
    report = _run(flow, folder, apply="--apply" in arguments)
    if "--json" in arguments:
        print_json(report)
    else:
        print_lines(as_text(report))
        if report.proposed:
            print(f"\nTo do it: llmc onboard {' '.join(words)} --apply")
    return 0


def _run(flow: str, folder: str | None, *, apply: bool) -> FlowReport:
    """Through the gate, on the folder that was named: a person's word is not bound to a server's roots."""
    loaded = load()
    loaded.config.observability.log_level = "error"
    root = folder or (downloads_folder() if flow == "organize_downloads" else ".")
    if not os.path.isdir(root):
        raise InvalidArgument(f"{root}: there is no such folder", hint="Name another: llmc onboard FLOW FOLDER")
    gate = build(loaded.config, [root], loaded.data_dir, loaded.files)
    defaults = loaded.config.session
    who = Session(f"uid:{os.getuid()}", f"cli-{os.getpid()}", defaults.default_agent_id, defaults.default_model)
    try:
        ctx = gate.context(who, correlation_id())
        wanted: dict[str, object] = {"flow_name": flow, "apply": apply}
        if FLOWS[flow].arguments:
            wanted["path"] = "."
        limit = loaded.config.limits.max_reply_bytes_cap
        return cast(FlowReport, gate.call(ctx, "linux_mcp_run_onboarding", wanted, reply_bytes=limit))
    finally:
        gate.close()
