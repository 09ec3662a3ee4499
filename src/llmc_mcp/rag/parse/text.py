"""The text of a file as it is parsed: UTF-8, whatever it is on the disk."""

import codecs

_ENCODINGS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def as_utf8(data: bytes) -> bytes | None:
    """The text of a file; None if it is no text. Text in UTF-16 says so with its first two bytes."""
    encoding = _ENCODINGS.get(data[:2])
    if encoding is not None and not len(data) % 2:
        data = data[2:].decode(encoding, "replace").encode()
    return None if b"\0" in data else data
