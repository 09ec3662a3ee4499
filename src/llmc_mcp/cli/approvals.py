"""`llmc approvals` and `llmc approve`: a person's answers to calls that ask.

No agent can give them: the store lies in the data directory, which no tool and no command of a server reaches.
"""

import getpass
import os
import sys
import time

from ..command_line import Arguments, Flag, Positional, declare
from ..config.load import load
from ..config.trust import INSIDE_COMMAND
from ..errors import Forbidden
from ..permissions.approvals import Approval, Approvals
from ..printing import print_line
from ..store.opening import store_of


def _approvals() -> Approvals:
    loaded = load()
    store = store_of(loaded.config.store, loaded.data_dir)
    return Approvals(lambda: store)


@declare(
    "approvals",
    "Lists the calls that wait for a person, with what they are about to do, oldest first.",
    flags=(Flag("--all", "those of the last day, answered or not"),),
)
def approvals(given: Arguments) -> int:
    """List them."""
    table = _approvals()
    rows = table.recent() if "--all" in given else table.pending()
    for row in rows:
        _print(row)
    if not rows:
        print("nothing waits for an answer", file=sys.stderr)
    return 0


@declare(
    "approve",
    "Lets the call that an agent was refused through, once and within ten minutes; the agent makes it again.",
    positionals=(Positional("ID", "as the refusal or llmc approvals names it"),),
    flags=(Flag("--deny", "refuse it instead"),),
)
def approve(given: Arguments) -> int:
    """Answer one."""
    if os.environ.get(INSIDE_COMMAND):
        raise Forbidden("a command of a server can't answer for a person", hint="Run it in a terminal of your own.")
    row = _approvals().answer(given.positionals[0], "--deny" not in given, f"terminal:{_user()}")
    _print(row)
    return 0


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this uid
        return str(os.getuid())


def _print(row: Approval) -> None:
    left = int(row.expires_at - time.time())
    state = f"{left} s left" if row.state == "pending" and left > 0 else row.state
    print_line(f"{row.id}  {state}  {row.tool}: {row.deed}")
    print_line(f"    {row.arguments}")
    print_line(f"    asked by {row.agent_id} as {row.principal}, session {row.session_id}; {row.rule}")
