"""The table of rules: which one decides about a call, and what.

The first rule that matches decides; where none does, a risky call asks and any other is allowed. A call that is about
several things (files, programs of a line) is judged for each of them, and the strictest judgement counts: so no
harmless part of a call can speak for the rest of it. The rules of a workspace's own file are judged apart, and can only
make the judgement stricter.

The part of a rule that is about tool and caller is settled once for each tool and caller; the rest of the rules are
filed by program, host or folder.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ..config.schema import PolicyRule, WorkspaceRule
from .globs import is_wild, longest_literal, name_regex, path_prefixes, path_regex

Action = Literal["allow", "ask", "deny"]

BY_SUBJECT = "sub:"  # how the principal of a client begins whose token an issuer signed
_STRICTNESS: dict[Action, int] = {"allow": 0, "ask": 1, "deny": 2}
_REMEMBERED = 4_096  # tools and callers


class CallShape(NamedTuple):
    """What of a call does not depend on its arguments."""

    names: tuple[str, ...]  # of the tool, its own first
    principal: str
    changes: bool


class Subject(NamedTuple):
    """One thing that a call is about. `tree`: everything below the path may be read or changed."""

    path: str = ""
    tree: bool = False
    program: str = ""
    host: str = ""


class Decision(NamedTuple):
    """What happens to a call, and by which rule: its place in the table from 1 on, 0 where none matched."""

    action: Action
    rule: PolicyRule | None
    place: int
    subject: Subject

    @property
    def reason(self) -> str:
        """Which rule decided, in words."""
        if self.rule is None:
            return "mcp.policy.ask" if self.action == "ask" else "no rule matches"
        origin = "the workspace's rule" if isinstance(self.rule, WorkspaceRule) else "rule"
        return f"{origin} {self.place} ({describe(self.rule)})"


class RuleTable:
    """Rules, ready to judge calls; safe from any thread."""

    def __init__(self, rules: Sequence[PolicyRule], ask: Sequence[str], roots: Sequence[str]) -> None:
        compiled = [_CompiledRule(rule, place, roots) for place, rule in enumerate(rules, 1)]
        self._own = [one for one in compiled if not isinstance(one.rule, WorkspaceRule)]
        self._workspace = [one for one in compiled if isinstance(one.rule, WorkspaceRule)]
        self._ask = frozenset(ask)
        self._shapes: dict[CallShape, tuple[_Chain, _Chain]] = {}

    def _chains(self, shape: CallShape) -> "tuple[_Chain, _Chain]":
        found = self._shapes.get(shape)
        if found is None:
            if len(self._shapes) >= _REMEMBERED:
                self._shapes.clear()
            found = self._shapes[shape] = _Chain(self._own, shape), _Chain(self._workspace, shape)
        return found

    def needs(self, shape: CallShape) -> frozenset[str]:
        """What rules want to know of such a call: path, program, host, risk."""
        own, workspace = self._chains(shape)
        return own.needs | workspace.needs

    def is_denied(self, shape: CallShape) -> bool:
        """Whether no arguments could make such a call possible."""
        return any(chain.always == "deny" for chain in self._chains(shape))

    def may_ask(self, shape: CallShape) -> bool:
        """Whether some arguments could make such a call ask."""
        return any(chain.may_ask for chain in self._chains(shape))

    def decide(self, shape: CallShape, subjects: Sequence[Subject], risk: str = "") -> Decision:
        """The judgement about a call: the strictest of those about its subjects."""
        own, workspace = self._chains(shape)
        strictest: Decision | None = None
        for subject in subjects or (Subject(),):
            for decision in self._judge(own, workspace, subject, risk):
                if strictest is None or _STRICTNESS[decision.action] > _STRICTNESS[strictest.action]:
                    strictest = decision
        return strictest or Decision("allow", None, 0, Subject())

    def _judge(self, own: "_Chain", workspace: "_Chain", subject: Subject, risk: str) -> Iterator[Decision]:
        first = own.first(subject, risk)
        if first is not None:
            yield Decision(first.rule.do, first.rule, first.place, subject)
        else:
            yield Decision("ask" if risk in self._ask else "allow", None, 0, subject)
        added = workspace.first(subject, risk)
        if added is not None:
            yield Decision(added.rule.do, added.rule, added.place, subject)


class _CompiledRule:
    """A rule with its patterns compiled."""

    def __init__(self, rule: PolicyRule, place: int, roots: Sequence[str]) -> None:
        self.rule, self.place = rule, place
        self._tool = re.compile(name_regex(rule.tool), re.DOTALL) if rule.tool else None
        self._token = re.compile(name_regex(rule.token), re.DOTALL) if rule.token else None
        self._subject = re.compile(name_regex(rule.subject), re.DOTALL) if rule.subject else None
        self._path = re.compile(path_regex(rule.path, roots), re.DOTALL) if rule.path else None
        self.prefixes = path_prefixes(rule.path, roots) if rule.path else []
        self.lies_in_folders = bool(self.prefixes) and not {"/", *roots} & set(self.prefixes)
        self._program = re.compile(name_regex(rule.program), re.DOTALL) if rule.program else None
        self._host = re.compile(name_regex(rule.host.lower()), re.DOTALL) if rule.host else None
        wants = {"path": rule.path, "program": rule.program, "host": rule.host, "risk": rule.risk}
        self.needs = frozenset(name for name, wanted in wants.items() if wanted)

    def concerns(self, shape: CallShape) -> bool:
        """Whether it is about such calls, whatever their arguments."""
        rule = self.rule
        if rule.when and (rule.when == "changes") != shape.changes:
            return False
        if self._tool is not None and not any(self._tool.fullmatch(name) for name in shape.names):
            return False
        signed = shape.principal.startswith(BY_SUBJECT)
        if self._token is not None and (signed or not self._token.fullmatch(shape.principal)):
            return False
        return self._subject is None or (
            signed and self._subject.fullmatch(shape.principal.removeprefix(BY_SUBJECT)) is not None
        )

    def matches(self, subject: Subject, risk: str) -> bool:
        """Whether a call about this subject meets the other conditions."""
        if self.rule.risk and self.rule.risk != risk:
            return False
        if self._path is not None and not self._covers(subject):
            return False
        if self._program is not None and not (subject.program and self._program.fullmatch(subject.program)):
            return False
        return self._host is None or bool(subject.host and self._host.fullmatch(subject.host.lower()))

    def _covers(self, subject: Subject) -> bool:
        """Whether the path matches; of a tree, a rule that restricts is about any part of it."""
        if self._path is None or not subject.path:
            return False
        if self._path.fullmatch(subject.path):
            return True
        if not subject.tree or self.rule.do == "allow":
            return False
        below = subject.path.rstrip("/") + "/"
        folders = [prefix.rstrip("/") + "/" for prefix in self.prefixes]
        return any(folder.startswith(below) or below.startswith(folder) for folder in folders)


class _Chain:
    """The rules that concern one kind of call, in their order, up to the first that matches every one of them.

    Each is filed under what is most telling of it, so that a subject meets few of them.
    """

    def __init__(self, rules: Sequence[_CompiledRule], shape: CallShape) -> None:
        mine: list[_CompiledRule] = []
        for rule in rules:
            if rule.concerns(shape):
                mine.append(rule)
                if not rule.needs:
                    break
        self.needs = frozenset[str]().union(*(rule.needs for rule in mine))
        self.may_ask = any(rule.rule.do == "ask" for rule in mine)
        self.always: Action | None = _always(mine)
        self._rules = mine
        self._named: dict[str, list[int]] = {}  # by the program or the host
        self._below: dict[str, list[int]] = {}  # by the folder that its paths lie in
        self._holding: list[tuple[str, int]] = []  # by a part of its paths
        self._others: list[int] = []
        for number, rule in enumerate(mine):
            self._file(number, rule)

    def _file(self, number: int, rule: _CompiledRule) -> None:
        name = rule.rule.program or rule.rule.host.lower()
        if name and not is_wild(name):
            self._named.setdefault(name, []).append(number)
        elif rule.lies_in_folders:
            for folder in rule.prefixes:
                self._below.setdefault(folder, []).append(number)
        elif rule.prefixes and (part := longest_literal(rule.rule.path)):
            self._holding.append((part, number))
        else:
            self._others.append(number)

    def first(self, subject: Subject, risk: str) -> _CompiledRule | None:
        """The first rule that matches."""
        if subject.tree:
            return next((rule for rule in self._rules if rule.matches(subject, risk)), None)
        for number in sorted(self._candidates(subject)):
            if self._rules[number].matches(subject, risk):
                return self._rules[number]
        return None

    def _candidates(self, subject: Subject) -> list[int]:
        found = list(self._others)
        if self._named:
            found += self._named.get(subject.program, ())
            found += self._named.get(subject.host.lower(), ())
        path = subject.path
        if path:
            found += [number for part, number in self._holding if part in path]
        folder = path if self._below else ""
        while folder:
            if folder in self._below:
                found += self._below[folder]
            folder = folder[: folder.rfind("/")]
        return found


def _always(rules: Sequence[_CompiledRule]) -> Action | None:
    """What happens to every such call; None if that depends on its arguments."""
    if not rules or rules[-1].needs:
        return None
    actions = {rule.rule.do for rule in rules}
    return rules[-1].rule.do if len(actions) == 1 else None


def describe(rule: PolicyRule) -> str:
    """A rule in a line."""
    fields = ("tool", "token", "subject", "path", "program", "host", "when", "risk")
    conditions = [f"{name}={value}" for name in fields if (value := getattr(rule, name))]
    return f"{' '.join(conditions) or 'any call'} → {rule.do}"
