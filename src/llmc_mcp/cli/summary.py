"""`llmc summary`: what a session did, and what to do next."""

from ..command_line import JSON, Arguments, Positional, declare
from ..config.load import load
from ..printing import print_json
from ..review.summary import SessionSummary, as_lines, summarize_session
from ..review.undoing import journal_of
from ..store.opening import store_of
from ..store.sessions import EVERYTHING


@declare(
    "summary",
    "What a session did: turns, tools, tokens, time, and its changes with their diffstat; then what to do next. Without"
    " SESSION, the latest of an agent on any server.",
    positionals=(Positional("SESSION", "the session, as llmc changes and /ui name it", required=False),),
    flags=(JSON,),
)
def command(given: Arguments) -> int:
    """Print the summary of one session."""
    loaded = load()
    store = store_of(loaded.config.store, loaded.data_dir)
    found = summarize_session(store, journal_of(loaded.config, store), EVERYTHING, given.first() or None)
    if "--json" in given:
        print_json(as_json(found))
    else:
        print("\n".join(as_lines(found)))
    return 0


def as_json(found: SessionSummary) -> dict[str, object]:
    """A summary as data."""
    return {
        **found.totals._asdict(),
        "busy_ms": found.busy_s * 1000,
        "span_ms": found.span_s * 1000,
        "turns": found.turns,
        "tools": {name: {"calls": count, "failed": failed} for name, count, failed in found.tools},
        "files": [one._asdict() for one in found.files],
        "changes_in_effect": found.standing,
        "actions": dict(found.actions),
    }
