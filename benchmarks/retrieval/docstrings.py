"""Questions without anybody's judgement: the first sentence of a docstring must find its function.

Packages come from PyPI. Every docstring is taken out before the package is indexed, so that only code can answer.
"""

import ast
import random
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from llmc_mcp.rag.parse.question import question

from .corpus import Source

CACHE = Path(__file__).parent.parent / ".cache" / "retrieval"
# Nothing was learned from the first list: neither weights nor word vectors. Weights of chunks come from the second.
MEASURED = (
    "dnspython==2.9.2",
    "docker==7.2.0",
    "jinja2==3.1.6",
    "marshmallow==4.4.0",
    "networkx==3.6.1",
    "paramiko==5.1.0",
    "peewee==4.5.3",
    "pendulum==3.3.0",
    "sqlglot==30.30.0",
    "structlog==26.1.0",
    "tornado==6.6.1",
)
LEARNED = (
    "oauthlib==4.0.1",
    "passlib==1.7.4",
    "pexpect==4.9.0",
    "prompt-toolkit==3.0.53",
    "pypdf==7.0.1",
    "rope==1.15.0",
    "rq==2.12.0",
    "sanic==25.12.1",
    "selenium==4.52.0",
    "urwid==5.0.1",
    "websockets==17.4",
    "werkzeug==3.1.9",
    "xlsxwriter==3.3.1",
)
_EACH = 60  # questions of a package
_FEWEST_WORDS = 4


class Item(NamedTuple):
    """A docstring's first sentence, and the function that it was taken from."""

    text: str
    path: str
    first: int
    last: int


class Package(NamedTuple):
    """A package without its docstrings."""

    name: str
    sources: list[Source]
    items: list[Item]


def packages(requirements: tuple[str, ...]) -> Iterator[Package]:
    """Packages, downloaded once."""
    for requirement in requirements:
        yield _package(requirement, wheel(requirement))


def wheel(requirement: str) -> Path:
    """A wheel, downloaded once."""
    folder = CACHE / "wheels" / requirement
    if not (found := list(folder.glob("*.whl"))):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--only-binary=:all:", "--dest", str(folder), requirement], check=True)
        found = list(folder.glob("*.whl"))
    return found[0]


def _package(requirement: str, wheel: Path) -> Package:
    sources: list[Source] = []
    items: list[Item] = []
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith(".py"):
                continue
            try:
                text, found = without_docstrings(archive.read(name).decode())
            except (SyntaxError, ValueError, RecursionError):
                continue
            sources.append(Source(name, text.encode()))
            if "/test" not in name:
                items += [Item(first_sentence(doc), name, first, last) for doc, first, last in found]
    items = [item for item in items if len(question(item.text).stems) >= _FEWEST_WORDS]
    random.Random(1).shuffle(items)
    return Package(requirement.partition("==")[0], sources, items[:_EACH])


def first_sentence(docstring: str) -> str:
    """What a docstring says first."""
    paragraph = re.sub(r"\s+", " ", docstring.strip().split("\n\n")[0])
    sentence = re.split(r"(?<=[.!?])\s", paragraph)[0]
    return re.sub(r":\w+:`([^`]*)`", r"\1", sentence)[:300]


def without_docstrings(text: str) -> tuple[str, list[tuple[str, int, int]]]:
    """A module without its docstrings; of each function its docstring, and its first and last line in what is left."""
    lines = text.split("\n")
    gone: set[int] = set()
    functions: list[tuple[str, int, int]] = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        doc = ast.get_docstring(node)
        said = node.body[0] if node.body else None
        start = 0 if isinstance(node, ast.Module) else node.lineno
        if not doc or said is None or said.end_lineno is None or said.lineno <= start:
            continue
        if len(node.body) == 1 and not isinstance(node, ast.Module):
            continue  # nothing would be left of it
        gone.update(range(said.lineno, said.end_lineno + 1))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((doc, node.lineno, node.end_lineno or node.lineno))
    kept = [line for line in range(1, len(lines) + 1) if line not in gone]
    now = {line: place for place, line in enumerate(kept, 1)}
    moved = [
        (doc, now[first], max(now[line] for line in range(first, last + 1) if line in now))
        for doc, first, last in functions
        if first in now
    ]
    return "\n".join(lines[line - 1] for line in kept), moved
