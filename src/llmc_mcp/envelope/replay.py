"""Condensing recorded output, as `te` would have done it: for the benchmark, and for `te discover`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .families import Envelope, budget_of
from .recognition import recognise_line
from .reply import as_text

if TYPE_CHECKING:
    from ..config.schema import Te
    from ..files.handles import Sink

_HANDLE = "H_cmd_20260101T000000Z_aaaaaaaaaaaaaaaa"  # as long as a real one


class Replayed(NamedTuple):
    """What te prints for a recorded command; `text` is the output itself where te leaves it as it is."""

    family: str
    text: bytes
    cut: bool = False
    failed: bool = False


class _Discarded:
    """A sink that keeps nothing."""

    def write(self, data: bytes) -> None:
        del data

    def finish(self) -> str:
        return _HANDLE

    def discard(self) -> None:
        pass


def replay(line: str, output: bytes, settings: "Te", recent: Sequence[str] = ()) -> Replayed:
    """Condense what a line printed in a session whose `recent` lines came before."""
    plan = recognise_line(line, recent)
    if plan is None:
        return Replayed("none", output)

    def open_sink() -> "Sink":
        return _Discarded()

    family = plan.kind
    envelope = Envelope(plan, open_sink, unchanged_tokens=settings.unchanged_tokens)
    envelope.feed(output)
    done = envelope.finish(budget_of(settings, settings.default_budget, 0)[0])
    if done is None:
        return Replayed(family, output, failed=envelope.failure is not None)
    return Replayed(family, as_text("replayed", done), done.shown.cut and done.unchanged is None)
