"""`llmc top`: what agents do, live in a terminal; undo, approve and stop by key."""

import gc
import importlib.util
import os
import sys

from ..command_line import Arguments, declare
from ..errors import FeatureUnavailable
from ..store.data_dir import data_directory

_ABOUT = """\
What agents do, on all servers of this user, as it happens: sessions and calls, changes, approvals, programs in the\
 background. Keys undo, redo, approve, deny and stop; the last line lists them. Needs the extra: pip install\
 'llmc-mcp[tui]'.
"""


@declare("top", _ABOUT)
def command(given: Arguments) -> int:
    """Show it until q."""
    del given
    if importlib.util.find_spec("textual") is None:
        raise FeatureUnavailable("the terminal view is not installed", hint="pip install 'llmc-mcp[tui]'")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise FeatureUnavailable("llmc top needs a terminal", hint="llmc summary, llmc calls and llmc changes print.")
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    gc.disable()  # importing makes nothing but objects that stay: collecting meanwhile costs a tenth of the start
    from .top_screen import TopScreen

    gc.freeze()
    gc.enable()

    TopScreen(data_directory()).run()
    return 0
