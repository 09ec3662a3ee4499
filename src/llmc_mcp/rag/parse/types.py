"""Types shared by the parts of the index. Lines count from 1, both ends included; byte ranges are half open."""

from itertools import accumulate
from typing import Literal

import msgspec

Confidence = Literal["exact", "likely", "name_only"]
ReferenceKind = Literal["call", "import", "inherit", "use"]


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A range of a file."""

    first_line: int
    last_line: int
    start: int
    end: int


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """A function, a class, a section of a document: anything that a file defines."""

    name: str  # as written: save
    qualname: str  # with its owner: Model.save
    kind: str  # function, method, class, struct, interface, trait, enum, type, module, constant, macro, section, …
    span: Span  # with its decorators and the comment above it
    signature: str  # in one line
    parent: int  # index of the enclosing definition in the file's list; -1 at the top


class Reference(msgspec.Struct, frozen=True, array_like=True):
    """A place where a file names a definition, its own or another file's."""

    name: str  # save
    receiver: str  # what it is an attribute of, as a path (see scopes.py); "" for a name that the file does not bind
    kind: ReferenceKind
    line: int
    inside: int  # index of the innermost enclosing definition; -1 at the top


ReferenceRow = tuple[str, str, ReferenceKind, int, int]  # the same while it is found and packed: a file has thousands

# The value of a name of a file or of one of its classes, or of a call of one of its functions: the index of the
# definition that it belongs to (-1 for the file), the name, the path (see scopes.py).
Binding = tuple[int, str, str]


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """The unit of search: a whole definition if it is small enough, else a part of one, or some lines."""

    span: Span
    definition: int  # index of the innermost definition that holds it; -1 for none


class PackedReferences(msgspec.Struct, frozen=True, array_like=True):
    """A file's references and bindings as they are stored: record.py packs and unpacks them."""

    record: bytes = b""
    mentioned: bytes = b""  # hashes of the names in it
    count: int = 0  # of references


class ParsedFile(msgspec.Struct, frozen=True, array_like=True):
    """Everything that was parsed from a file; sent from a worker to the process that writes the index."""

    path: str  # below the root, decoded with surrogateescape
    language: str  # of the grammar; "" for text without one
    sha256: bytes
    definitions: list[Definition]
    chunks: list[Chunk]
    references: PackedReferences
    broken_line: int = 0  # of the first syntax error; 0 for none
    imports: list[int] = []  # hashes; see imports.py


class SyntaxProblem(msgspec.Struct, frozen=True, array_like=True):
    """A syntax error."""

    line: int
    missing: str = ""  # the token that is missing, if the grammar knows


def line_starts(source: bytes) -> list[int]:
    """The first byte of each line, and one past the end of the last. Only \\n ends a line here."""
    if b"\r" in source:
        return [0, *accumulate(len(line) + 1 for line in source.split(b"\n"))]
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]  # the same, without a call for each line
    if source.endswith(b"\n") or not source:
        starts.append(len(source) + 1)
    else:
        starts[-1] += 1
    return starts
