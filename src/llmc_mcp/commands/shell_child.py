"""The process that parses shell lines and reports which programs they name. It sees lines, never files.

What a line names is what its author wrote down: the words in the place of a command, in pipelines, substitutions,
loops and functions, and what simple wrappers (`timeout 5 make`, `xargs rm`, `find -exec`, `sh -c '…'`) start. A word
that is only known when the line runs (`$CMD`) is not reported.
"""

import select
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ..rag.build.syntax_child import IDLE_S, receive, send

if TYPE_CHECKING:
    from tree_sitter import Node

    from ..rag.parse.parse import SyntaxTree

_MOST_NAMES = 2_000
_DEEPEST = 4  # of lines in lines: sh -c "sh -c …"

# Programs that start the program named by their first operand, and their options that take a value of their own.
_WRAPPERS = {
    "builtin": "",
    "chrt": "",
    "command": "",
    "coproc": "",
    "doas": "C u",
    "env": "u C S --unset --chdir --split-string",
    "exec": "a",
    "ionice": "c n p --class --classdata",
    "nice": "n --adjustment",
    "nohup": "",
    "setsid": "",
    "stdbuf": "i o e --input --output --error",
    "sudo": "C D g h p R T u U --user --group --chdir --host --prompt",
    "time": "f o --format --output",
    "timeout": "k s --kill-after --signal",
    "xargs": "a d E I L n P s --arg-file --delimiter --max-lines --max-args --max-procs --max-chars",
}
_ENV_SPLITS = ("-S", "-vS", "-iS", "--s")  # env makes words of a text: which ones, it says when it runs
_OPERANDS_FIRST = {"timeout": 1, "chrt": 1}  # words of their own before the program
_SHELLS = frozenset({"bash", "dash", "sh", "zsh"})
_SHELL_VALUES = frozenset({"--rcfile", "--init-file"})
_GIT_VALUES = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"})
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_CHANGES_FOLDER = frozenset({"cd", "popd", "pushd"})
_OWN_SHELL = frozenset({"command_substitution", "process_substitution", "subshell", "function_definition"})


class LineQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A line, as bash gets it."""

    line: bytes


class LineNames(msgspec.Struct, array_like=True):
    """The programs that a line names, in its order; `complete` is False where it could not be parsed in time."""

    complete: bool = True
    programs: list[str] = []
    functions: list[str] = []  # that the line itself defines
    changes_folder: bool = False  # in the shell of the line itself, so that a caller may expect it to last
    in_background: bool = False  # it starts something in the background
    unknown: bool = False  # a program of it is known only when it runs
    pushes: bool = False  # it has git push somewhere
    deletes: list[str] = []  # what it removes with all that it holds; `?`: known only when it runs


def main() -> None:
    """Serve until stdin closes."""
    decoder = msgspec.msgpack.Decoder(LineQuestion)
    while select.select([0], [], [], IDLE_S)[0] and (frame := receive(0)) is not None:
        send(1, msgspec.msgpack.encode(names_in(decoder.decode(frame).line)))


def names_in(line: bytes) -> LineNames:
    """What a line names."""
    found = LineNames(True, [], [], deletes=[])
    _read(line, found, 0)
    found.unknown |= len(found.programs) > _MOST_NAMES
    if len(found.deletes) > _MOST_NAMES:
        found.deletes[0] = "?"
    del found.programs[_MOST_NAMES:], found.functions[_MOST_NAMES:], found.deletes[_MOST_NAMES:]
    return found


def _read(line: bytes, found: LineNames, depth: int) -> None:
    from ..rag.parse.parse import syntax

    tree = syntax("bash", line)
    if not tree.complete:
        found.complete = False
        return
    todo: list[tuple[Node, bool]] = [(tree.root, depth == 0)]
    while todo:
        node, outermost = todo.pop()
        if node.type == "command":
            words = [_static(tree, child) for child in _words(node)]
            found.changes_folder |= outermost and bool(words) and words[0] in _CHANGES_FOLDER
            _take(words, found, depth)
        elif node.type == "function_definition":
            name = node.child_by_field_name("name")
            found.functions += [tree.text(name)] if name is not None else []
        elif node.type == "&":
            found.in_background = True
        if node.is_error:  # what the parser made of rubble means nothing, and a shell may read it otherwise
            found.unknown = True
        else:
            inside = outermost and node.type not in _OWN_SHELL
            todo.extend((child, inside) for child in reversed(node.children))


def _words(command: "Node") -> Iterator["Node"]:
    """The words of a command, without assignments before it and redirections in it."""
    for child in command.named_children:
        if child.type == "command_name":
            yield child.children[0] if child.children else child
        elif child.type not in ("variable_assignment", "file_redirect", "heredoc_redirect", "herestring_redirect"):
            yield child


def _static(tree: "SyntaxTree", node: "Node") -> str | None:
    """What a word is, where that is known before the line runs."""
    if node.type in ("word", "number"):
        return tree.text(node).replace("\\\n", "").replace("\\", "")
    if node.type == "raw_string":
        return tree.text(node)[1:-1]
    if node.type == "string":
        inside = node.named_children
        if all(part.type == "string_content" for part in inside):
            return _unescaped(tree.text(node)[1:-1])
    if node.type == "concatenation":
        parts = [_static(tree, part) for part in node.named_children]
        return "".join(part for part in parts if part is not None) if None not in parts else None
    return None


def _unescaped(text: str) -> str:
    """A double-quoted text without the backslashes that quote something in it."""
    for character in ("\\", '"', "$", "`"):
        text = text.replace(f"\\{character}", character)
    return text


def _take(words: list[str | None], found: LineNames, depth: int) -> None:
    """Note the program of a command, and those that it starts if it is a wrapper."""
    while words:
        program = words.pop(0)
        if program is None:
            found.unknown = True
            return
        found.programs.append(program)
        name = program.rpartition("/")[2]
        if name == "rm":
            found.deletes += _deleted(words)
        found.pushes |= name == "git" and _git_command(words) == "push"
        if name == "find":
            for number, word in enumerate(words):
                if word in _FIND_RUNS:
                    _take(words[number + 1 :], found, depth)
        elif name in _SHELLS or name == "eval":
            script = _script(words) if name in _SHELLS else _joined(words)
            if script is None or depth >= _DEEPEST:
                found.unknown = True
            else:
                _read(script.encode(errors="replace"), found, depth + 1)
        if name not in _WRAPPERS or (name == "command" and words[:1] in (["-v"], ["-V"])):  # it only asks
            return
        found.unknown |= name == "env" and any(word and word.startswith(_ENV_SPLITS) for word in words)
        words = _behind_options(name, words)


def _deleted(words: list[str | None]) -> list[str]:
    """What rm removes, if folders with all that they hold."""
    ends = words.index("--") if "--" in words else len(words)
    options = [word for word in words[:ends] if word is not None and word.startswith("-")]
    if not any(word == "--recursive" or (word[1:2] != "-" and {"r", "R"} & set(word)) for word in options):
        return []
    return [word if word is not None else "?" for word in words if word not in (*options, "--")]


def _git_command(words: list[str | None]) -> str | None:
    """The command of git, behind its own options."""
    at = 0
    while at < len(words):
        word = words[at]
        if word is None or not word.startswith("-"):
            return word
        at += 2 if word in _GIT_VALUES else 1
    return None


def _script(words: list[str | None]) -> str | None:
    """The line that a shell is given with -c, empty without one; None if it is known only when it runs."""
    given, rest = False, iter(words)
    for word in rest:
        if word is None:
            return None
        if not word.startswith(("-", "+")) or word in ("-", "--"):
            script = next(rest, "") if word in ("-", "--") else word
            return script if given else ""
        if word in _SHELL_VALUES:
            next(rest, None)
        elif not word.startswith("--"):
            given |= word.startswith("-") and "c" in word
            for _ in range(word.count("o") + word.count("O")):
                next(rest, None)
    return ""


def _joined(words: list[str | None]) -> str | None:
    known = [word for word in words if word is not None]
    return " ".join(known) if len(known) == len(words) else None


def _behind_options(name: str, words: list[str | None]) -> list[str | None]:
    """The words of a wrapper from the program on that it starts."""
    with_value = _WRAPPERS[name].split()
    own = _OPERANDS_FIRST.get(name, 0)
    while words:
        word = words[0]
        if word is None:
            if not own:
                break
            own -= 1
        elif word.startswith("--"):
            if word in with_value:
                words = words[1:]
        elif word.startswith("-") and len(word) > 1:
            if word[1:] in with_value:  # -n 1; in -n1 the value comes along
                words = words[1:]
        elif name == "env" and "=" in word:
            pass
        elif own:
            own -= 1
        else:
            break
        words = words[1:]
    return words
