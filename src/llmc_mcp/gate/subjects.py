"""What the arguments of a call are about, as rules judge it: paths as they resolve, and programs of command lines.

A path is judged as it is spelled and as it leads to: neither a link nor `..` brings a call past a rule.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from ..app import App
from ..errors import LlmcError
from ..permissions.rules import Subject
from ..tool import CODE_INDEX, ToolDef

_PATHS = ("path", "source", "target", "root", "cwd", "paths")
_COMMANDS = ("command", "args")
_USUAL_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"})


def subjects_of(app: App, tool: ToolDef, arguments: Mapping[str, Any], needs: frozenset[str]) -> list[Subject]:
    """What a call is about, as far as rules want to know: every path with every program of it."""
    paths = list(_path_subjects(app, tool, arguments)) if "path" in needs else []
    programs = _programs(app, tool, arguments) if "program" in needs else []
    if not programs:
        return paths
    return [
        Subject(path.path, path.tree, program) for path in paths or [Subject()] for program in dict.fromkeys(programs)
    ]


def _path_subjects(app: App, tool: ToolDef, arguments: Mapping[str, Any]) -> Iterator[Subject]:
    spelled: list[str] = [path for name in _PATHS for path in _strings(arguments.get(name))]
    if "root" in arguments and "path" in arguments:  # the path starts there
        spelled = [os.path.join(str(arguments["root"]), str(arguments["path"]))]
    if "diff_text" in arguments:
        spelled += _named_in(arguments["diff_text"])
    indexed = tool.needs == CODE_INDEX
    if not indexed and "symbol" in arguments and arguments.get("action") != "rename":
        spelled += _file_of(app, arguments["symbol"])
    anywhere = not spelled and any(name in tool.arguments.__struct_fields__ for name in ("paths", "symbol"))
    if indexed or anywhere:
        yield from (Subject(root.shown, tree=True) for root in app.files.roots)
    elif not spelled and any(name in tool.arguments.__struct_fields__ for name in ("cwd", "root")):
        spelled = ["."]
    for path in dict.fromkeys(spelled):
        for real in _spellings(app, path):
            yield Subject(real, tree=tool.whole_trees and os.path.isdir(real))


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(item) for item in cast(Sequence[object], value)] if isinstance(value, list | tuple) else []


def _file_of(app: App, symbol: str) -> list[str]:
    """The file that a symbol names; where it names none, the definition may be anywhere."""
    from ..tools.code_edit import file_of

    try:
        place = file_of(app.files, symbol)
    except LlmcError:
        return []
    return [place.absolute] if place is not None else []


def _named_in(diff_text: str) -> list[str]:
    """The files that a diff is about; one that can't be read is refused by its tool."""
    from ..changes import diff

    try:
        patches = diff.parse(diff_text)
    except LlmcError:
        return []
    return [path for patch in patches for path in (patch.old_path, patch.new_path) if path]


def _spellings(app: App, path: str) -> set[str]:
    """A path as it is spelled and as the server resolves it, absolute; none where its tool refuses it anyway."""
    try:
        place = app.files.locate(path)
        return {os.path.normpath(place.absolute), app.files.resolved(place)}
    except LlmcError:
        return {os.path.normpath(os.path.join(app.files.roots[0].shown, os.path.expanduser(path)))}


def _programs(app: App, tool: ToolDef, arguments: Mapping[str, Any]) -> list[str]:
    """The programs that a command names; `?` stands for one that is known only when it runs."""
    if tool.program:
        return _program_names(tool.program)
    given: Any = next((arguments[name] for name in _COMMANDS if arguments.get(name)), None)
    if given is None:
        return []
    try:
        names = app.shell_lines.names(given)
    except LlmcError:
        return ["?"]  # words are run even if nobody can tell which programs they name
    programs = [name for program in names.programs for name in _program_names(program)]
    return programs + ["?"] * names.unknown


def _program_names(program: str) -> list[str]:
    """The name of a program of the system; any other one is its path, and called by its name all the same."""
    folder, _, name = program.rpartition("/")
    return [name] if not folder or folder in _USUAL_FOLDERS else [program, name]
