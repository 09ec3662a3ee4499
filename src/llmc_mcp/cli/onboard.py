"""`llmc onboard`: the onboarding flows for a person."""

import os
from typing import cast

from ..command_line import JSON, Arguments, Flag, Positional, declare
from ..config.load import load
from ..errors import InvalidArgument
from ..gate.log import correlation_id
from ..machine.downloads import downloads_folder
from ..printing import print_json, print_lines
from ..server import build
from ..tools.linux_ops.onboarding import FLOWS, FlowReport, as_text
from .person import session

_ABOUT = """\
Runs an onboarding flow and prints its report.

  organize_downloads   how the loose files of FOLDER (default: your downloads) would be sorted; --apply moves them,
                       and llmc undo takes all of it back
  explain_repo         what the repository in FOLDER (default: here) is, where it starts, how it is run and tested
  system_health        how this machine does, what is out of the ordinary and why that matters
"""


@declare(
    "onboard",
    _ABOUT,
    positionals=(
        Positional("FLOW", "one of the above", tuple(FLOWS)),
        Positional("FOLDER", "the folder that it is about", required=False),
    ),
    flags=(Flag("--apply", "do what the flow proposes"), JSON),
)
def command(given: Arguments) -> int:
    """Run a flow and print its report."""
    flow, *folder = given.positionals
    report = _run(flow, folder[0] if folder else None, apply="--apply" in given)
    if "--json" in given:
        print_json(report)
    else:
        print_lines(as_text(report))
        if report.proposed:
            print(f"\nTo do it: llmc onboard {' '.join(given.positionals)} --apply")
    return 0


def _run(flow: str, folder: str | None, *, apply: bool) -> FlowReport:
    """Call the tool on the folder that was named: a person is not bound to a server's roots."""
    loaded = load()
    loaded.config.observability.log_level = "error"
    root = folder or (downloads_folder() if flow == "organize_downloads" else ".")
    if not os.path.isdir(root):
        raise InvalidArgument(f"{root}: there is no such folder", hint="Name another: llmc onboard FLOW FOLDER.")
    gate = build(loaded.config, [root], loaded.data_dir, loaded.files, loaded.trusted_files)
    try:
        ctx = gate.context(session(), correlation_id())
        arguments: dict[str, object] = {"flow_name": flow, "apply": apply}
        if FLOWS[flow].arguments:
            arguments["path"] = "."
        limit = loaded.config.limits.max_reply_bytes_cap
        return cast(FlowReport, gate.call(ctx, "linux_mcp_run_onboarding", arguments, reply_bytes=limit))
    finally:
        gate.close()
