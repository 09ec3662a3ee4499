"""The first message of a TLS client, read for the one thing in it that is of interest: the name it asks for."""

from collections.abc import Iterator

MAX_HELLO = 16 << 10
_MAX_RECORDS = 16  # a hello may be split; one that is split into more pieces means to hide something
_CHANGE_CIPHER, _HANDSHAKE, _DATA = 20, 22, 23  # kinds of records
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
# The random number of a HelloRetryRequest: the hash of its name (RFC 8446, 4.1.3).
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
_SERVER_NAME, _HOST_NAME = 0, 0
_ENCRYPTED = (0xFE0D, 0xFFCE)  # Encrypted ClientHello, and the draft before it: the visible name is not the real one
ALERT = bytes((21, 3, 3, 0, 2, 2, 49))  # fatal: access denied


class NotAllowedHello(Exception):
    """It is no ClientHello that shows where it goes; the message says why."""


def server_name(data: bytes | bytearray, *, again: bool = False) -> bytes | None:
    """The name that a ClientHello asks for, in lower case; None while more of it has to come.

    `again`: it is the second one, to which the server's answer to the first has led.
    """
    message = bytearray()
    records = 0
    at = _behind_middle_records(data) if again else 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        piece = _record(data, at)
        if piece is None:
            return None
        records += 1
        at += 5 + len(piece)
        message += piece
        if records > _MAX_RECORDS or at > MAX_HELLO or message[0] != _CLIENT_HELLO:
            raise NotAllowedHello("no ClientHello in its first records")
        if len(message) >= 4 and int.from_bytes(message[1:4], "big") > MAX_HELLO:
            raise NotAllowedHello("the ClientHello is too long")
    if len(message) != 4 + int.from_bytes(message[1:4], "big"):
        raise NotAllowedHello("something follows the ClientHello in its record")
    try:
        return _name_in(memoryview(bytes(message))[4:])
    except (IndexError, ValueError):
        raise NotAllowedHello("the ClientHello is malformed") from None


def is_retry(data: bytes | bytearray) -> bool | None:
    """Whether a server's answer asks for another ClientHello (HelloRetryRequest); None while more of it has to come."""
    if data[:1] not in (b"", bytes((_HANDSHAKE,))):
        return False
    if len(data) < 5 + 4 + 2 + 32:
        return None
    return data[5] == _SERVER_HELLO and bytes(data[11:43]) == _RETRY


def _behind_middle_records(data: bytes | bytearray) -> int:
    """Where a second ClientHello begins: behind a mark that older devices want to see, and behind early data."""
    at = 0
    while len(data) >= at + 5 and data[at] in (_CHANGE_CIPHER, _DATA) and data[at + 1] == 3:
        at += 5 + int.from_bytes(data[at + 3 : at + 5], "big")
    return at


def _record(data: bytes | bytearray, at: int) -> bytes | None:
    head = bytes(data[at : at + 5])
    if head[:1] not in (b"", bytes((_HANDSHAKE,))) or head[1:2] not in (b"", b"\x03"):
        raise NotAllowedHello("not TLS")
    if len(head) < 5:
        return None
    size = int.from_bytes(head[3:5], "big")
    if not 0 < size <= 1 << 14:
        raise NotAllowedHello("not TLS")
    return bytes(data[at + 5 : at + 5 + size]) if len(data) >= at + 5 + size else None


def _name_in(body: memoryview) -> bytes:
    rest = body[34:]  # version, random
    for width in (1, 2, 1):  # session, cipher suites, compression methods
        rest = rest[width + _number(rest, width) :]
    names: list[bytes] = []
    extensions = _exactly(rest)
    while extensions:
        kind, size = _number(extensions, 2), _number(extensions[2:], 2)
        content = extensions[4 : 4 + size]
        if len(content) != size:
            raise ValueError("cut off")
        extensions = extensions[4 + size :]
        if kind in _ENCRYPTED:
            raise NotAllowedHello("the server name is encrypted (ECH)")
        if kind == _SERVER_NAME:
            names += _host_names(content)
    if len(names) != 1:
        raise NotAllowedHello("no server name (SNI)" if not names else "several server names")
    return names[0].lower()


def _host_names(content: memoryview) -> Iterator[bytes]:
    entries = _exactly(content)
    while entries:
        kind, size = entries[0], _number(entries[1:], 2)
        name = entries[3 : 3 + size]
        if kind != _HOST_NAME or len(name) != size:
            raise ValueError("not a host name")
        yield bytes(name)
        entries = entries[3 + size :]


def _exactly(data: memoryview) -> memoryview:
    """What two bytes of length say, which must be all there is."""
    if _number(data, 2) != len(data) - 2:
        raise ValueError("wrong length")
    return data[2:]


def _number(data: memoryview, width: int) -> int:
    if len(data) < width:
        raise ValueError("cut off")
    return int.from_bytes(data[:width], "big")
