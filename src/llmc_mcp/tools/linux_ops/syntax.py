"""Check the syntax of changed files."""

import time

from ...context import Context

_LONGEST_S = 0.5  # time limit for all files of a change


def syntax_after(ctx: Context, undo_id: str) -> str | None:
    """`ok`, or the first error of each file that has one; None without a grammar. Never fails: the change is made."""
    verdicts: list[tuple[str, str | None]] = []
    until = time.monotonic() + _LONGEST_S
    try:
        change = ctx.app.changes.journal.find(undo_id, ctx.session.principal)
        for path, before, after in ctx.app.undoing.texts(change, ctx.app.checker.may_know):
            in_time = time.monotonic() < until
            verdicts.append((path, ctx.app.checker.check(path, before, after) if in_time else None))
    except Exception as exc:  # noqa: BLE001 - the change has been made and must be reported as such
        ctx.warnings.append(f"the syntax was not checked: {exc}")
    return summary(verdicts)


def summary(verdicts: list[tuple[str, str | None]]) -> str | None:
    """The verdict on one file; for several, the errors by path, and how many files were checked if not all."""
    if len(verdicts) <= 1:
        return verdicts[0][1] if verdicts else None
    checked = [(path, verdict) for path, verdict in verdicts if verdict is not None]
    if not checked:
        return None
    wrong = "; ".join(f"{path} {verdict}" for path, verdict in checked if verdict != "ok") or "ok"
    return wrong if len(checked) == len(verdicts) else f"{wrong} ({len(checked)} of {len(verdicts)} files checked)"
