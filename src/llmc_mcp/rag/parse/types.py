"""What the parts of the index hand each other. Lines count from 1, both ends included; bytes are half open."""

from itertools import accumulate
from typing import Literal

import msgspec

Confidence = Literal["exact", "likely", "name_only"]
ReferenceKind = Literal["call", "import", "inherit", "use"]


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a file."""

    first_line: int
    last_line: int
    start: int
    end: int


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """Something that a file defines: a function, a class, a section of a document."""

    name: str  # as written: save
    qualname: str  # with what it lies in: Model.save
    kind: str  # function, method, class, struct, interface, trait, enum, type, module, constant, macro, section, …
    span: Span  # with its decorators and the comment above it
    signature: str  # its head in one line
    doc: str  # what its docstring or the comment above it says, first paragraph
    parent: int  # the definition around it, by its place in the file's list; -1 at the top


class Reference(msgspec.Struct, frozen=True, array_like=True):
    """A place where a file names something that is defined here or elsewhere."""

    name: str  # save
    receiver: str  # what it is taken from, as a path of scopes.py; "" for a name that the file does not bind
    kind: ReferenceKind
    line: int
    inside: int  # the innermost definition around it, by its place in the file's list; -1 at the top


class Binding(msgspec.Struct, frozen=True, array_like=True):
    """What a name of a file, of one of its classes, or a call of one of its functions stands for."""

    owner: int  # the definition that it belongs to, by its place in the file's list; -1 for the file
    name: str
    path: str  # as scopes.py writes paths


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """What a search finds: a whole definition where it is small enough, else a part of one, or some lines."""

    span: Span
    definition: int  # the innermost definition that it is a part of; -1 for none


class PackedReferences(msgspec.Struct, frozen=True, array_like=True):
    """A file's references and bindings as they are stored: record.py packs and unpacks them."""

    record: bytes = b""
    mentioned: bytes = b""  # hashes of the names in it
    count: int = 0  # of references


class ParsedFile(msgspec.Struct, frozen=True, array_like=True):
    """Everything that one look at a file found out; it travels from a parsing process to the one that writes."""

    path: str  # below the root, as the file system has it (surrogateescape)
    language: str  # of the grammar; "" for text without one
    sha256: bytes
    definitions: list[Definition]
    chunks: list[Chunk]
    references: PackedReferences
    broken_line: int = 0  # of the first syntax error; 0 for none


class SyntaxProblem(msgspec.Struct, frozen=True, array_like=True):
    """A syntax error."""

    line: int
    missing: str = ""  # what should be there, where the grammar knows


def line_starts(source: bytes) -> list[int]:
    """The first byte of each line, and at the end that of the line after the last. Only \\n ends a line here."""
    return [0, *accumulate(len(line) + 1 for line in source.split(b"\n"))]
