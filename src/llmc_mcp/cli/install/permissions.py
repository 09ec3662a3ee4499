"""What `llmc install --allow` writes: a client calls the server's tools without asking, and prefers them to its own."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from . import jsonc
from .client_file import ClientFile, change, print_diff, replace
from .jsonc import Unreadable

_BEGIN, _END = "<!-- llmc -->", "<!-- /llmc -->"
_PREFERENCE = (
    "For files, search and commands prefer the tools of the MCP server llmc to built-in ones: what they change can be"
    " undone, and commands run in a sandbox."
)

TOOLS = "{tools}"  # stands for the list of the server's tools
TOOL = "{tool}"  # stands for each of them

Rules = list[str] | dict[str, object]


class Recipe(NamedTuple):
    """Where a client keeps what it may do without asking; it need not have all parts.

    `rules` are items of a list at `rules_path` of a JSON file, or members of an object, each with `rule_value`.
    `memory` is the file of instructions that the client gives its agents.
    """

    in_entry: Mapping[str, object] = {}
    rules_file: Callable[[], str] | None = None
    project_rules_file: str = ""
    rules_path: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    rule_value: object = None
    memory: Callable[[], str] | None = None
    note: str = ""

    def about(self) -> str:
        """What --allow does, in a sentence."""
        parts = ["its tools run without asking"] if self.in_entry or self.rules else []
        parts += ["agents are told to prefer them"] if self.memory else []
        said = f"With `--allow` {' and '.join(parts)}. {self.note}" if parts else self.note
        return said.strip()

    def entry(self, tools: list[str]) -> dict[str, object]:
        """What belongs into the server's entry."""
        return {name: tools if value == TOOLS else value for name, value in self.in_entry.items()}

    def file_of_rules(self, *, project: bool) -> str:
        """The file of rules; empty if there is none."""
        if project and self.project_rules_file:
            return os.path.join(os.getcwd(), self.project_rules_file)
        return self.rules_file() if self.rules_file else ""

    def all_rules(self, tools: list[str]) -> Rules:
        """The rules about these tools."""
        names = [rule.replace(TOOL, tool) for rule in self.rules for tool in (tools if TOOL in rule else [""])]
        return names if self.rule_value is None else dict.fromkeys(names, self.rule_value)


def write(recipe: Recipe, tools: list[str], *, project: bool, dry_run: bool = False) -> list[str]:
    """Write rules and preference, or print the change; returns the files that changed.

    What belongs into the entry is not written here.
    """
    changed = list[str]()
    wanted = recipe.all_rules(tools)
    if path := recipe.file_of_rules(project=project):
        _change(path, lambda text: _with_rules(text, recipe.rules_path, wanted), changed, dry_run=dry_run)
    if recipe.memory and not project:
        _change(recipe.memory(), _with_preference, changed, dry_run=dry_run)
    return changed


def remove(recipe: Recipe, tools: list[str], *, project: bool, dry_run: bool = False) -> list[str]:
    """Take back what `write` wrote, or print the change; returns the files that changed."""
    changed = list[str]()
    unwanted = recipe.all_rules(tools)
    if path := recipe.file_of_rules(project=project):
        _change(path, lambda text: _without_rules(text, recipe.rules_path, unwanted), changed, dry_run=dry_run)
    if recipe.memory and not project:
        _change(recipe.memory(), _without_preference, changed, dry_run=dry_run)
    return changed


def _change(path: str, edit: Callable[[str], str], changed: list[str], *, dry_run: bool) -> None:
    def act(file: ClientFile) -> None:
        before = file.text or ""
        after = edit(before)
        if after == before:
            return
        if dry_run:
            print_diff(file.shown, before, after)
            return
        if after.strip() in ("", "{}"):
            os.unlink(file.path)
        else:
            replace(file, after, keep=bool(before.strip()))
        changed.append(path)

    change(path, act)


# --- rules -----------------------------------------------------------------------------------------------------------


def _rules_in(text: str, path: Sequence[str], empty: Rules) -> Any:
    found: Any = jsonc.parse(text, comments=True).value
    for name in path:
        if not isinstance(found, dict):
            raise Unreadable(1, f"{name} is not in an object")
        found = cast("dict[str, Any]", found).get(name)
        if found is None:
            return type(empty)()
    if not isinstance(found, dict if isinstance(empty, dict) else list):
        raise Unreadable(1, f"{'.'.join(path)} is not what was expected")
    return cast("Any", found)


def _with_rules(text: str, path: Sequence[str], wanted: Rules) -> str:
    there = _rules_in(text, path, wanted)
    if isinstance(wanted, dict):
        for name, value in wanted.items():
            if there.get(name) != value:
                text = jsonc.put(text, (*path, name), value, comments=True)
        return text
    missing = [rule for rule in wanted if rule not in there]
    return jsonc.put(text, path, [*there, *missing], comments=True) if missing else text


def _without_rules(text: str, path: Sequence[str], unwanted: Rules) -> str:
    there = _rules_in(text, path, unwanted)
    if isinstance(unwanted, dict):
        for name in unwanted:
            if name in there:
                text = jsonc.cut(text, (*path, name), comments=True)
        left: Any = {name: value for name, value in there.items() if name not in unwanted}
    else:
        left = [rule for rule in there if rule not in unwanted]
        if left != there and left:
            return jsonc.put(text, path, left, comments=True)
    return _without_empty(text, path) if there and not left else text


def _without_empty(text: str, path: Sequence[str]) -> str:
    """The text without a value that is empty now, and without the objects that held nothing else."""
    for depth in range(len(path), 0, -1):
        text = jsonc.cut(text, path[:depth], comments=True)
        if _rules_in(text, path[: depth - 1], {}):
            break
    return text


# --- preference ------------------------------------------------------------------------------------------------------


def _with_preference(text: str) -> str:
    if _BEGIN in text:
        return text
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}{_BEGIN}\n{_PREFERENCE}\n{_END}\n"


def _without_preference(text: str) -> str:
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(f"{_END}\n")
    return before.removesuffix("\n") + after if begin and end else text


def is_only_preference(text: str) -> bool:
    """Whether a file holds nothing but what `write` wrote."""
    return _BEGIN in text and not _without_preference(text).strip()
