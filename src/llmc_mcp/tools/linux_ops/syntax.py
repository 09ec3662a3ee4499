"""What a change did to the syntax of files."""

import time

from ...app import Context

_LONGEST_S = 0.5  # for all files of a change together


def syntax_after(ctx: Context, undo_id: str) -> str | None:
    """`ok`, or the first error of each file that has one; None where no grammar can tell. Never fails: it is done."""
    told: list[tuple[str, str]] = []
    until = time.monotonic() + _LONGEST_S
    try:
        change = ctx.app.changes.journal.find(undo_id, ctx.session.principal)
        for path, before, after in ctx.app.undoing.texts(change, ctx.app.checker.may_know):
            if (said := ctx.app.checker.check(path, before, after)) is not None:
                told.append((path, said))
            if time.monotonic() > until:
                break
    except Exception as exc:  # noqa: BLE001 - whatever it is, the change has been made and must be told as such
        ctx.warnings.append(f"the syntax was not checked: {exc}")
    wrong = [(path, said) for path, said in told if said != "ok"]
    if len(told) == 1:
        return told[0][1]
    return "; ".join(f"{path} {said}" for path, said in wrong) if wrong else "ok" if told else None
