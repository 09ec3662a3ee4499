"""What is asked of the process that reads code for edits, and what it answers."""

import msgspec

from .types import Reference


class NameQuery(msgspec.Struct, frozen=True, array_like=True, tag="names"):
    """Where some references of a file, and its definitions, write a name that is to become another one."""

    language: str
    text: bytes
    old: str
    new: str
    wanted: list[Reference]
    strings: bool = False


class NamePlaces(msgspec.Struct, frozen=True, array_like=True):
    """First bytes of a name. What is not here does not write the name: an alias, or a text that does not parse."""

    references: dict[int, int]  # which of the wanted references is there
    definitions: list[int]  # by the place of the definition; -1 for one with another name
    aliases: dict[int, int]  # by the byte of an import: where it binds the name once more, `import old as old`
    shorthands: list[int]  # at which the name is also the key of a property, which stays
    imports: list[int]  # at which it is imported and bound
    bare: list[int]  # at which it has no receiver
    keys: list[int]  # at which it may be a key or an argument's name instead
    strings: list[int]
    clashes: list[int]  # lines on which the file uses the new name without a receiver
    owners: dict[int, int] = {}  # by the place of a constructor: where it names its class once more, `Old::Old()`
    unsettled: bool = False  # whether the name stands for an import among other things somewhere
    problem: str = ""


class OutlineQuery(msgspec.Struct, frozen=True, array_like=True, tag="outline"):
    """What a text defines, and where."""

    language: str
    text: bytes


class OutlinedDefinition(msgspec.Struct, frozen=True, array_like=True):
    """A definition of a text as it is now."""

    name: str
    qualname: str
    kind: str
    parent: int
    signature: str
    start: int  # of the comment and the decorators above it
    head: int  # below those
    end: int
    line: int  # of its head


class Outline(msgspec.Struct, frozen=True, array_like=True):
    """What a text defines; the lines that begin inside a string, whose indentation is part of it; those with errors."""

    definitions: list[OutlinedDefinition]
    in_strings: list[int]
    complete: bool = True
    error_lines: list[int] = []
