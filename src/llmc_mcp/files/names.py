r"""File names are bytes; agents read text. The one reversible mapping between the two.

Names are shown as UTF-8. A byte that is not valid UTF-8, and every byte of a control character (a newline in a
name would forge a row of a listing, a change of direction another name), is shown as `\xNN`. A backslash that
already looks like such an escape is shown as `\x5c`, so that every shown name stands for exactly one file.
Nothing else is encoded, expanded or normalised.
"""

import re

from ..errors import BadArgs

_ESCAPES = re.compile(r"\\x(5c|7f|[01][0-9a-f]|[89a-f][0-9a-f])")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]|\\(?=x(?:5c|7f|[01][0-9a-f]|[89a-f][0-9a-f]))")

MAX_PATH_BYTES = 4095
MAX_NAME_BYTES = 255


def show(name: bytes) -> str:
    """The text form of a name or path."""
    text = name.decode("utf-8", "backslashreplace") if not name.isascii() else name.decode("ascii")
    if "\\" not in text and text.isprintable():
        return text
    # Literal backslashes are protected first; only then may invalid bytes add some of their own.
    shown = name.decode("utf-8", "surrogateescape")
    shown = _CONTROLS.sub(lambda match: "".join(f"\\x{byte:02x}" for byte in match[0].encode()), shown)
    return re.sub("[\udc80-\udcff]", lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", shown)


def parse(text: str) -> bytes:
    """The bytes that a text form stands for; the inverse of `show`, and plain UTF-8 for everything else."""
    if not text:
        raise BadArgs("the path is empty")
    if "\x00" in text:
        raise BadArgs("the path contains a NUL byte")
    try:
        if "\\x" in text:
            name = _unescape(text)
        else:
            name = text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadArgs("the path is not valid Unicode (lone surrogate)") from None
    if b"\x00" in name:
        raise BadArgs("the path contains a NUL byte")
    if len(name) > MAX_PATH_BYTES or any(len(part) > MAX_NAME_BYTES for part in name.split(b"/")):
        raise BadArgs(f"the path is too long (limits: {MAX_PATH_BYTES} bytes, {MAX_NAME_BYTES} a name)")
    return name


def _unescape(text: str) -> bytes:
    parts: list[bytes] = []
    position = 0
    for match in _ESCAPES.finditer(text):
        parts += [text[position : match.start()].encode("utf-8"), bytes([int(match[1], 16)])]
        position = match.end()
    parts.append(text[position:].encode("utf-8"))
    return b"".join(parts)
