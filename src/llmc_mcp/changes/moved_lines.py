"""Where lines went that a caller knows from an earlier revision of a file."""

from .. import errors
from ..files import codec
from .edit import END, LineEdit

_SHOWN_LINES = 30
_SHOWN_WIDTH = 200


def stale(label: str, revision: str, now: bytes, before: bytes | None, edits: list[LineEdit]) -> errors.Stale:
    """The refusal: the lines as they are now, and where the old ones are, as far as the former content is known."""
    lines = _lines(now)
    message = f"{label}: changed since you read it; its rev is {revision} now. Nothing was changed."
    if not edits:
        return errors.Stale(message, hint=f"Read it again, or pass expected={revision} if the change does not matter.")
    first = edits[0]
    if before is not None:
        moved = [_moved(_lines(before), lines, edit) for edit in edits]
        if all(moved):
            places = ", ".join(f"{edit.range} → {new}" for edit, new in zip(edits, moved, strict=True))
            return errors.Stale(
                f"{message} The lines you mean are unchanged: {places}.",
                hint=f"Send the edit again with these line numbers and expected={revision}.",
            )
    shown = _numbered(lines, first.first, max(first.last, first.first))
    return errors.Stale(
        f"{message} Lines {first.range} are now:\n{shown}", hint=f"Choose the lines again; expected={revision}."
    )


def _lines(data: bytes) -> list[str]:
    return codec.decode(data).text.replace("\r\n", "\n").split("\n")


def _moved(before: list[str], now: list[str], edit: LineEdit) -> str:
    """The range in which the lines of an edit are now; empty if they are not there once, with their neighbours."""
    first, last = edit.first - 1, len(before) if edit.last == END else edit.last
    if not 0 <= first <= last <= len(before):
        return ""
    # A line on either side tells one `}` from another; lines at the ends of the file have one neighbour.
    low, high = max(first - 1, 0), min(last + 1, len(before))
    block = before[low:high]
    places = [at for at in range(len(now) - len(block) + 1) if now[at : at + len(block)] == block]
    if len(places) != 1:
        return ""
    start = places[0] + first - low + 1
    if edit.last == END:
        return LineEdit(start, END, "").range if places[0] + len(block) == len(now) else ""
    return LineEdit(start, start + last - first - 1, "").range


def _numbered(lines: list[str], first: int, last: int) -> str:
    chosen = range(first, min(last, first + _SHOWN_LINES - 1, len(lines)) + 1)
    return "\n".join(f"{number}: {lines[number - 1][:_SHOWN_WIDTH]}" for number in chosen) or "(the file ends before)"
