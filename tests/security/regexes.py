"""Every regular expression in the source, and texts made from each that a careless one needs quadratic time for.

A text follows the pattern to one of its loops, goes round it many times and then does not go on as the pattern wants;
or it starts the pattern again and again without ever ending it.
"""

import ast
import os
import re
import resource
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import llmc_mcp

sre: Any = import_module("re._constants")  # whose types nobody wrote down
_parser: Any = import_module("re._parser")
SOURCE = Path(str(llmc_mcp.__file__)).parent
_FUNCTIONS = {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
# Texts of annotations, which are cut short first.
SHORT = {"rag/parse/bind_python.py": 1_000, "rag/parse/facts.py": 1_000}
LENGTH = 30_000
CPU_SECONDS = 2  # linear time needs a twentieth of it, quadratic time several times as much
PIECE = 200  # bytes by which a child says what it tries next
_LONG = 16  # a loop that may go round as often as this can be made to
_SAMPLES = 6  # of one alternative's ways


class Expression(NamedTuple):
    """A regular expression, where it stands and how it is used."""

    where: str
    pattern: str | bytes
    flags: int
    uses: frozenset[str]

    def run(self, text: str | bytes) -> None:
        """Use it on a text as the source does; a search is done to the end of the text."""
        compiled: re.Pattern[Any] = re.compile(self.pattern, self.flags)
        for use in self.uses:
            if use in ("match", "fullmatch"):
                getattr(compiled, use)(text)
            else:
                for _ in compiled.finditer(text):
                    pass


class Built(NamedTuple):
    """One that is put together while the program runs."""

    where: str
    source: str


def expressions() -> tuple[list[Expression], list[Built]]:
    """All of the source: those that are written out, and those that are not."""
    written: list[Expression] = []
    built: list[Built] = []
    for path in sorted(SOURCE.rglob("*.py")):
        name, nodes = str(path.relative_to(SOURCE)), list(ast.walk(ast.parse(path.read_text())))
        names = {node.value: node.targets[0] for node in nodes if isinstance(node, ast.Assign)}
        methods = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr in _FUNCTIONS]
        for node in nodes:
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re"):
                continue
            if node.func.attr not in _FUNCTIONS:
                continue
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str | bytes):
                uses = _uses(methods, names.get(node)) if node.func.attr == "compile" else {node.func.attr}
                written.append(Expression(f"{name}:{node.lineno}", first.value, _flags(node), frozenset(uses)))
            else:
                built.append(Built(name, ast.unparse(first)))
    return written, built


def _uses(methods: list[ast.Attribute], name: ast.expr | None) -> set[str]:
    """How a module uses a compiled expression: by its name, or as it uses those that it hands around."""
    named = {node.attr for node in methods if name and ast.unparse(node.value) == ast.unparse(name)}
    handed = {node.attr for node in methods if not isinstance(node.value, ast.Name)}
    return named or handed or {"match", "search"}


def _flags(call: ast.Call) -> int:
    given = [word.value for word in call.keywords if word.arg == "flags"]
    position = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(str(getattr(call.func, "attr", "")), 2)
    given += call.args[position : position + 1]
    return int(eval(ast.unparse(given[0]), {"re": re})) if given else 0  # the source's own words


def attacks(expression: Expression, length: int) -> Iterator[str | bytes]:
    """Texts of about this length that this pattern might stumble over."""
    binary = isinstance(expression.pattern, bytes)
    text = expression.pattern.decode("latin-1") if isinstance(expression.pattern, bytes) else expression.pattern
    tree = _parser.parse(text, expression.flags & ~re.ASCII)
    seen: set[str] = set()
    for prefix, pump in _pumps(tree, ""):
        for one, many in ((prefix, pump), ("", prefix + pump), (prefix + pump, "\n" + prefix + pump)):
            if many and (made := one + many * (length // len(many))) not in seen:
                seen.add(made)
                for end in ("", "\x01", "\n!"):
                    yield (made + end).encode("latin-1", "replace") if binary else made + end


def _pumps(tree: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """A way to each loop, and once round it."""
    for operation, argument in tree:
        if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            least, most, body = argument
            if most is sre.MAXREPEAT or most >= _LONG:
                yield from ((prefix, way) for way in _ways(body) if way)
            yield from _pumps(body, prefix)
            prefix += next(iter(_ways(body)), "") * int(least)
        elif operation is sre.SUBPATTERN:
            yield from _pumps(argument[3], prefix)
            prefix += next(iter(_ways(argument[3])), "")
        elif operation is sre.ATOMIC_GROUP:
            yield from _pumps(argument, prefix)
            prefix += next(iter(_ways(argument)), "")
        elif operation is sre.BRANCH:
            for branch in argument[1]:
                yield from _pumps(branch, prefix)
            prefix += next(iter(_ways(argument[1][0])), "")
        elif operation in (sre.ASSERT, sre.ASSERT_NOT):
            yield from _pumps(argument[1], prefix)
        else:
            prefix += next(iter(_one((operation, argument))), "")
    if prefix:
        yield "", prefix


def _ways(tree: Any) -> list[str]:
    """Some texts that it matches."""
    made = [""]
    for item in tree:
        more = _one(item)
        made = [start + end for start in made for end in more][:_SAMPLES]
    return made


def _one(item: Any) -> list[str]:
    operation, argument = item
    if operation in (sre.LITERAL,):
        return [chr(argument)]
    if operation is sre.NOT_LITERAL:
        return [next(letter for letter in "a 0" if ord(letter) != argument)]
    if operation is sre.ANY:
        return ["a", " "]
    if operation is sre.IN:
        return _letters(argument)
    if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least, most, body = argument
        return [way * max(int(least), min(int(most), 1)) for way in _ways(body)]
    if operation is sre.SUBPATTERN:
        return _ways(argument[3])
    if operation is sre.ATOMIC_GROUP:
        return _ways(argument)
    if operation is sre.BRANCH:
        return [way for branch in argument[1] for way in _ways(branch)][: _SAMPLES * 2]
    return [""]


def _letters(choices: Any) -> list[str]:
    pattern = "".join(_shown(choice) for choice in choices)
    fits = re.compile(f"[{pattern}]")
    return [letter for letter in "a0 \t\n_A.-/\"'\\<>()[]{}=:;#*\x1b\x00é" if fits.match(letter)][:_SAMPLES] or [
        chr(choices[-1][1] if choices[-1][0] is sre.LITERAL else choices[-1][1][0])
    ]


def _shown(choice: Any) -> str:
    operation, argument = choice
    if operation is sre.NEGATE:
        return "^"
    if operation is sre.LITERAL:
        return re.escape(chr(argument))
    if operation is sre.RANGE:
        return f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}"
    return {
        sre.CATEGORY_DIGIT: r"\d",
        sre.CATEGORY_NOT_DIGIT: r"\D",
        sre.CATEGORY_SPACE: r"\s",
        sre.CATEGORY_NOT_SPACE: r"\S",
        sre.CATEGORY_WORD: r"\w",
        sre.CATEGORY_NOT_WORD: r"\W",
    }[argument]


def too_slow(expression: Expression) -> str:
    """The beginning of a text that it does not get through in time in proportion to it; empty where there is none."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        for text in attacks(expression, SHORT.get(expression.where.partition(":")[0], LENGTH)):
            os.write(writer, ascii(text[:40]).encode().ljust(PIECE)[:PIECE])
            expression.run(text)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        tried = pipe.read()
    return "" if os.waitpid(pid, 0)[1] == 0 else tried[-PIECE:].decode().strip()


if __name__ == "__main__":
    for one in expressions()[0]:
        if stumbled := too_slow(one):
            print(f"{one.where}: {one.pattern!r} on {stumbled}…")
