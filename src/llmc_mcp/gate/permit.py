"""Whether a call may happen: by the operator's rules, by a person's word, or not.

A tool states what a call is about to do that a person had better agree to (`consent` of `@tool`), the rules say what is
allowed, what asks and what is denied. A call that asks is put to the user where the client shows questions. Where it
does not, or nobody answers, the call is refused with the id of an approval, which a person gives in a terminal or on
the page; the same call is then let through once.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..app import App
from ..context import Context, UserQuestion
from ..errors import ApprovalRequired, Declined, PermissionDenied, Stale
from ..permissions.approvals import AskedCall, shown_arguments
from ..permissions.rules import CallShape, Decision, RuleTable, Subject
from ..session import Session
from ..tool import Risk, ToolDef
from ..visible import visible
from .subjects import subjects_of

if TYPE_CHECKING:
    from .catalog import Catalog

_REMEMBERED = 1_000  # sessions


class Permits:
    """The rules in force, and what they say about calls."""

    def __init__(self, app: App, catalog: "Catalog", bounds: Sequence[str] = ()) -> None:
        self._app, self._catalog = app, catalog
        self._bounds = bounds  # the operator's roots: what a client opens in them moves no rule
        self._lock = threading.Lock()
        self._made_from: tuple[object, object] | None = None  # the very objects: equal ones may be compiled again
        self._table = RuleTable((), (), ())
        self._listed: dict[tuple[str, str], list[dict[str, Any]]] = {}

    @property
    def table(self) -> RuleTable:
        """The rules as they are configured now, compiled once."""
        policy = self._app.config.policy
        rules, ask = policy.rules, policy.ask
        if self._made_from is None or self._made_from[0] is not rules or self._made_from[1] is not ask:
            with self._lock:
                roots = [root.shown for root in self._app.files.roots]
                self._table = RuleTable(rules, ask, sorted({*roots, *self._real_roots(), *self._bounds}))
                self._made_from = (rules, ask)
        return self._table

    def _real_roots(self) -> list[str]:
        return [os.fsdecode(root.real) for root in self._app.files.roots]

    def shape(self, session: Session, tool: ToolDef) -> CallShape:
        """What rules know of a call before its arguments."""
        changes = self._catalog.scope_of(tool) != "read"
        return CallShape((tool.name, *tool.aliases), session.principal, changes)

    def may_ask(self, tool: ToolDef, session: Session) -> bool:
        """Whether some rule could make a call of this tool ask."""
        return bool(self._app.config.policy.rules) and self.table.may_ask(self.shape(session, tool))

    def visible(self, session: Session) -> list[dict[str, Any]]:
        """What tools/list shows a session: what it may never call is not there. Within a session it stays the same."""
        key = (session.principal, session.session_id)
        listed = self._listed.get(key)
        if listed is None:
            while len(self._listed) >= _REMEMBERED:
                self._listed.pop(next(iter(self._listed)), None)
            listed = self._listed[key] = [
                entry
                for entry in self._catalog.visible(session)
                if not self.table.is_denied(self.shape(session, self._catalog.tools[entry["name"]]))
            ]
        return listed

    def decide(self, ctx: Context, tool: ToolDef, arguments: Mapping[str, Any]) -> tuple[Decision, Risk | None]:
        """What the rules say about a call, and the risk that the tool sees in it."""
        table, shape = self.table, self.shape(ctx.session, tool)
        risk = tool.consent(ctx, arguments) if tool.consent is not None else None
        subjects = subjects_of(ctx.app, tool, arguments, table.needs(shape))
        return table.decide(shape, subjects, risk.kind if risk is not None else ""), risk

    def check(self, ctx: Context, tool: ToolDef, arguments: Mapping[str, Any]) -> None:
        """Return if the call may happen; raise if a rule denies it, or nobody agrees to it."""
        decision, risk = self.decide(ctx, tool, arguments)
        if decision.action == "allow":
            return
        if decision.action == "deny":
            raise PermissionDenied(
                f"{tool.name}{_about(decision.subject)} is denied by {decision.reason}",
                hint="The rules are the operator's: llmc policy show. Don't try another way round.",
            )
        if ctx.forwarded and ctx.agreed:
            return  # a person was asked where the call came in
        call = self._asked(ctx, tool, arguments, decision, risk)
        self._obtain(ctx, call)
        ctx.agreed = True
        again, risk = self.decide(ctx, tool, arguments)  # as when a process id is given to another process meanwhile
        if again.action == "deny" or self._asked(ctx, tool, arguments, again, risk).hash != call.hash:
            raise Stale(f"{tool.name}: what the user agreed to has changed meanwhile", hint="Look again, then decide.")

    def ask_for_host(self, session: Session, target: str) -> None:
        """Have a person asked about a host that commands were denied, unless a rule denies it."""
        from ..config.network import invalid_entries
        from ..permissions.hosts import NETWORK, asked_host

        name = target.rpartition(":")[0]
        if not name or invalid_entries([target]):
            return
        shape = CallShape((NETWORK,), session.principal, True)
        decision = self.table.decide(shape, (Subject(host=name),), NETWORK)
        if decision.action == "ask":
            self._app.approvals.request(asked_host(session, target, decision.reason, self._app.root_set.key))

    def _asked(
        self, ctx: Context, tool: ToolDef, arguments: Mapping[str, Any], decision: Decision, risk: Risk | None
    ) -> AskedCall:
        deed = risk.deed if risk is not None else f"make this call{_about(decision.subject)}"
        paths = subjects_of(ctx.app, tool, arguments, frozenset({"path"}))
        about = tuple(sorted(subject.path for subject in paths))
        return AskedCall(ctx.session, tool.name, arguments, deed, decision.reason, self._app.root_set.key, about)

    def _obtain(self, ctx: Context, call: AskedCall) -> None:
        """Return if a person agrees to a call."""
        approved = self._app.approvals.use(call)
        if approved:
            return
        if approved is None and ctx.can_ask:
            answer = ctx.ask(_question(call))
            ctx.check()
            if answer is not None and answer.action == "accept":
                return
            approved = False if answer is not None and answer.action == "decline" else None
        if approved is False:
            raise Declined(
                f"{call.tool} needs the user's consent to {call.deed}: the user said no",
                hint="Nothing was done. Don't try again; ask the user what to do instead.",
            )
        pending = self._app.approvals.request(call)
        raise ApprovalRequired(
            f"{call.tool} needs a person's approval to {call.deed} ({call.rule})",
            approval_id=pending.id,
            hint=f"Ask the user to run: llmc approve {pending.id} (or to answer on the server's page). "
            "Then make the same call again; within ten minutes it is let through once.",
        )


def _about(subject: Subject) -> str:
    words = [word for word in (subject.program, subject.host, subject.path) if word]
    return f" ({', '.join(visible(word) for word in words)})" if words else ""


def _question(call: AskedCall) -> UserQuestion:
    """A question whose key stands for this call, so that no answer can be taken for another's."""
    message = f"{call.tool}: {visible(call.deed)}? {visible(shown_arguments(call.arguments))}"
    return UserQuestion(f"consent-{call.hash[:16]}", message)
