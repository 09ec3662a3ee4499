"""Parse one file for the index, from its text alone."""

import hashlib

from .chunk import chunks
from .detect import language_of
from .imports import imported
from .languages import PARSED
from .macros import syntax_without_macros
from .manifests import manifest
from .parse import first_error
from .queries import ask
from .record import packed
from .references import find
from .references import imports as find_imports
from .symbols import definitions
from .types import Definition, PackedReferences, ParsedFile

_DEEPEST = 200  # names are looked up outwards, in quadratic time; no handwritten code nests deeper


def look(path: str, source: bytes, *, with_references: bool = True) -> ParsedFile:
    """Parse a file for the index. Never raises because of its content.

    The graph needs references, search does not; they take as long as half of the rest.
    """
    language = language_of(path, source[:4096])
    found, broken, references, imports = [], 0, PackedReferences(), list[int]()
    if language in PARSED and not _is_minified(source):
        parsed = syntax_without_macros(language, source)
        broken = first_error(parsed)
        nodes = ask(parsed, "references" if with_references else "imports")
        found = definitions(parsed, nodes.definitions)
        if parsed.complete and _depth(found) <= _DEEPEST:
            if with_references:
                said = find(parsed, found, nodes.others)
                references, imports = packed(said.references, said.bindings), imported(path, language, said.imports)
            else:
                imports = imported(path, language, find_imports(parsed, found, nodes.others))
    elif with_references and (bindings := manifest(path, source)):
        references = packed([], bindings)
    sha256 = hashlib.sha256(source).digest()
    return ParsedFile(
        path=path,
        language=language,
        sha256=sha256,
        definitions=found,
        chunks=chunks(source, found),
        references=references,
        broken_line=broken,
        imports=imports,
    )


def _is_minified(source: bytes) -> bool:
    """A minified file has names of one letter and hardly any lines: its definitions are of no use."""
    return len(source) > 5_000 and len(source) > 500 * (source.count(b"\n") + 1)


def _depth(found: list[Definition]) -> int:
    depths: list[int] = []
    for one in found:
        depths.append(depths[one.parent] + 1 if one.parent >= 0 else 1)
    return max(depths, default=0)
