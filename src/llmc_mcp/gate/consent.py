"""The user's consent: asked for before a call that can't be undone, or that touches what the agent did not make.

A tool states what a call is about to do (`consent` of `@tool`); that it is asked for, and what an answer means, is
decided here. It is asked for only where the client puts questions to its user.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from ..context import Context, UserQuestion
from ..errors import Declined, Stale
from ..tool import ToolDef
from ..visible import visible

_ANSWERS = {"decline": "the user said no", "cancel": "the user closed the question"}


def obtain(ctx: Context, tool: ToolDef, arguments: Mapping[str, Any]) -> None:
    """Return if the call needs no consent or has it; raise if the user does not agree."""
    if tool.consent is None:
        return
    deed = tool.consent(ctx, arguments)
    if deed is None:
        return
    answer = ctx.ask(_question(tool, deed))
    if answer is None or answer.action != "accept":
        reason = "nobody answered" if answer is None else _ANSWERS.get(answer.action, "the answer is no yes")
        raise Declined(
            f"{tool.name} needs the user's consent to {deed}: {reason}",
            hint="Nothing was done. Don't try again; ask the user what to do instead.",
        )
    ctx.check()
    if tool.consent(ctx, arguments) != deed:  # as when a process id is given to another process meanwhile
        raise Stale(f"{tool.name}: what the user agreed to has changed meanwhile", hint="Look again, then decide.")


def _question(tool: ToolDef, deed: str) -> UserQuestion:
    """A question whose key stands for this deed, so that no answer can be taken for another's."""
    digest = hashlib.sha256(f"{tool.name}\0{deed}".encode("utf-8", "replace")).hexdigest()[:16]
    return UserQuestion(f"consent-{digest}", f"{tool.name}: {visible(deed)}?")
