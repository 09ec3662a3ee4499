"""References and bindings of a file as the index stores them: columns of small numbers, each string once, compressed.

The names that a file mentions are stored beside it as hashes: a scan over a few hundred kilobytes tells which files of
a repository can refer to a name. There is no row per name, so a changed file is one row to write.
"""

import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from .columns import steps, sums
from .types import Binding, PackedReferences, Reference, ReferenceKind, ReferenceRow

KINDS: tuple[ReferenceKind, ...] = ("call", "import", "inherit", "use")
_NUMBER = {kind: number for number, kind in enumerate(KINDS)}
_HASH_BYTES = 4

_Columns = tuple[str, list[int], list[int], list[int], list[int], list[int], list[int], list[int], list[int]]
_decoder = msgspec.msgpack.Decoder(_Columns)


def packed(references: Sequence[ReferenceRow], bindings: Sequence[Binding]) -> PackedReferences:
    """Everything that the graph stores about a file; no bytes if there is nothing in either list."""
    if not references and not bindings:
        return PackedReferences()
    names, receivers, kinds, lines, insides = zip(*references, strict=True) if references else ((),) * 5
    owners, bound, paths = zip(*bindings, strict=True) if bindings else ((),) * 3
    strings = {text: number for number, text in enumerate(dict.fromkeys(chain(names, receivers, bound, paths)))}
    number = strings.__getitem__
    columns = (
        "\n".join(strings),
        [*map(number, names)],
        [*map(number, receivers)],
        [*map(_NUMBER.__getitem__, kinds)],
        steps(lines),
        steps(insides),
        owners,
        [*map(number, bound)],
        [*map(number, paths)],
    )
    record = zlib.compress(msgspec.msgpack.encode(columns), 6)
    return PackedReferences(record, _hashes(names), len(references))


class Record:
    """The references and bindings of a file, as stored by `packed`."""

    def __init__(self, data: bytes) -> None:
        if not data:
            self._strings: list[str] = []
            self.names: list[int] = []
            self._receivers = self._kinds = self._lines = self._insides = self.names
            self.bindings: dict[tuple[int, str], list[str]] = {}
            return
        text, self.names, self._receivers, self._kinds, lines, insides, owners, bound, paths = _decoder.decode(
            zlib.decompress(data)
        )
        self._strings = strings = text.split("\n")
        self._lines, self._insides = list(sums(lines)), list(sums(insides))
        self.bindings = {}
        for owner, name, path in zip(owners, bound, paths, strict=True):
            self.bindings.setdefault((owner, strings[name]), []).append(strings[path])

    def __len__(self) -> int:
        return len(self.names)

    def reference(self, place: int) -> Reference:
        """One reference by its index."""
        strings = self._strings
        return Reference(
            strings[self.names[place]],
            strings[self._receivers[place]],
            KINDS[self._kinds[place]],
            self._lines[place],
            self._insides[place],
        )

    def named(self, wanted: Iterable[str]) -> Iterator[Reference]:
        """The references to these names."""
        return map(self.reference, self.places(wanted))

    def places(self, wanted: Iterable[str]) -> Iterator[int]:
        """The indexes of the references to these names."""
        strings = self._strings
        numbers = {strings.index(name) for name in wanted if name in strings}
        return (place for place, number in enumerate(self.names) if number in numbers)

    def inside(self, places: "set[int] | range") -> Iterator[Reference]:
        """The references inside these definitions."""
        return (self.reference(at) for at, inside in enumerate(self._insides) if inside in places)

    def distinct(self) -> Iterator[tuple[Reference, int]]:
        """Each distinct reference once, with its number of occurrences; its line is that of the first."""
        seen: dict[tuple[int, int], list[int]] = {}
        for place, key in enumerate(zip(self.names, self._receivers, strict=True)):
            entry = seen.get(key)
            if entry is None:
                seen[key] = [place, 1]
            else:
                entry[1] += 1
        return ((self.reference(place), count) for place, count in seen.values())

    def imports(self) -> Iterator[tuple[str, str]]:
        """What the file imports: names, and paths of their sources."""
        strings, wanted = self._strings, _NUMBER["import"]
        columns = zip(self.names, self._receivers, self._kinds, strict=True)
        return ((strings[name], strings[path]) for name, path, kind in columns if kind == wanted)

    def all(self) -> Iterator[Reference]:
        """Every reference, in the order of the file: imports first."""
        return map(self.reference, range(len(self.names)))


def _hashes(names: Iterable[str]) -> bytes:
    """The names that a file mentions, for `mentions`."""
    return array("I", sorted(set(map(_hash, set(names))))).tobytes()


def mentions(hashed: bytes, name: str) -> bool:
    """Whether a file mentions a name; false positives are one in a billion."""
    needle = _hash(name).to_bytes(_HASH_BYTES, "little")
    at = hashed.find(needle)
    while at >= 0:
        if at % _HASH_BYTES == 0:
            return True
        at = hashed.find(needle, at + 1)
    return False


def _hash(name: str) -> int:
    return zlib.crc32(name.encode("utf-8", "replace"))
