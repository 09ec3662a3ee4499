"""Decoding and encoding text files losslessly: untouched parts come back byte for byte."""

import codecs
from typing import NamedTuple

from .. import errors
from . import slices as files

# Error handlers that keep invalid bytes through a round trip.
_LOSSLESS = {"utf-8": "surrogateescape", "latin-1": "strict"}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Document(NamedTuple):
    """A text file: its byte order mark (or b""), the codec of the rest, and the rest, line ends as they are."""

    text: str
    mark: bytes
    codec: str

    def encode(self, text: str) -> bytes:
        """`text` as this file would hold it."""
        try:
            return self.mark + text.encode(self.codec, _LOSSLESS.get(self.codec, "surrogatepass"))
        except UnicodeEncodeError as exc:
            raise errors.BadArgs(
                f"{_named(text[exc.start])} does not exist in the file's encoding, {self.codec}",
                hint="Leave that character out, or write the whole file anew as UTF-8.",
            ) from None


def decode(data: bytes) -> Document:
    """Decode a text file; refuse binary content."""
    if b"\0" not in data and not data.startswith(tuple(mark for mark, _ in _MARKS)):
        try:
            return Document(data.decode(), b"", "utf-8")  # the common case, without detecting the encoding first
        except UnicodeDecodeError:
            pass
    encoding = files.encoding_of(data, whole=True)
    if encoding is None:
        raise errors.InvalidArgument(
            f"not a text file ({files.binary_type(data)})", hint="Replace binary files as a whole, by a command."
        )
    mark, codec = next(((mark, codec) for mark, codec in _MARKS if data.startswith(mark)), (b"", encoding))
    try:
        text = data[len(mark) :].decode(codec, _LOSSLESS.get(codec, "surrogatepass"))
    except UnicodeDecodeError:
        raise errors.InvalidArgument(
            f"not valid {codec} text: its last character is cut off", hint="Replace the file as a whole."
        ) from None
    return Document(text, mark, codec)


def refuse_surrogates(name: str, text: str) -> None:
    """Refuse lone surrogates, such as JSON's \\ud800 alone: no encoding has bytes for them."""
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise errors.BadArgs(f"{name} has a lone surrogate, {_named(text[exc.start])}, at {exc.start}") from None


def _named(character: str) -> str:
    shown = f"{character!r} " if character.isprintable() else ""
    return f"{shown}U+{ord(character):04X}"
