"""ClientHellos as a real TLS library makes them, and what an attacker makes of them."""

import ssl
import struct


def client_hello(name: str | None) -> bytes:
    """The first record of a client that asks for a name, or for none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def in_records(hello: bytes, size: int) -> bytes:
    """The same message in records of `size` bytes."""
    message = hello[5:]
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(hello[:3] + struct.pack(">H", len(piece)) + piece for piece in pieces)


def with_extension(hello: bytes, kind: int, content: bytes) -> bytes:
    """The same message with one more extension, at its end."""
    body = bytearray(hello[9:])
    at = 34
    for width in (1, 2, 1):
        at += width + int.from_bytes(body[at : at + width], "big")
    body[at : at + 2] = struct.pack(">H", int.from_bytes(body[at : at + 2], "big") + 4 + len(content))
    body += struct.pack(">HH", kind, len(content)) + content
    message = hello[5:6] + len(body).to_bytes(3, "big") + bytes(body)
    return hello[:3] + struct.pack(">H", len(message)) + message


def server_name_extension(*names: str) -> bytes:
    """The content of the extension that names servers."""
    entries = b"".join(b"\0" + struct.pack(">H", len(name)) + name.encode() for name in names)
    return struct.pack(">H", len(entries)) + entries
