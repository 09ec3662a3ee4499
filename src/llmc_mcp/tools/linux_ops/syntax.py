"""What a change did to the syntax of files."""

import time

from ...context import Context

_LONGEST_S = 0.5  # for all files of a change together


def syntax_after(ctx: Context, undo_id: str) -> str | None:
    """`ok`, or the first error of each file that has one; None where no grammar can tell. Never fails: it is done."""
    told: list[tuple[str, str | None]] = []
    until = time.monotonic() + _LONGEST_S
    try:
        change = ctx.app.changes.journal.find(undo_id, ctx.session.principal)
        for path, before, after in ctx.app.undoing.texts(change, ctx.app.checker.may_know):
            in_time = time.monotonic() < until
            told.append((path, ctx.app.checker.check(path, before, after) if in_time else None))
    except Exception as exc:  # noqa: BLE001 - whatever it is, the change has been made and must be told as such
        ctx.warnings.append(f"the syntax was not checked: {exc}")
    return summary(told)


def summary(told: list[tuple[str, str | None]]) -> str | None:
    """Of one file what is said of it; of several the errors, by path, and how many nobody could look at."""
    if len(told) <= 1:
        return told[0][1] if told else None
    checked = [(path, said) for path, said in told if said is not None]
    if not checked:
        return None
    wrong = "; ".join(f"{path} {said}" for path, said in checked if said != "ok") or "ok"
    return wrong if len(checked) == len(told) else f"{wrong} ({len(checked)} of {len(told)} files checked)"
