"""Error replies over HTTP, all in one JSON format."""

import math
from collections.abc import Mapping

import msgspec

from ..errors import BadArgs, LlmcError, RateLimited

JSON = b"application/json"
Headers = list[tuple[bytes, bytes]]


def refusal(status: int, message: str, hint: str | None = None) -> LlmcError:
    """A bad request with an explicit HTTP status, such as wrong method or wrong content type."""
    error = BadArgs(message, hint=hint)
    error.http_status = status
    return error


def error_reply(
    error: LlmcError, correlation_id: str, extra: Mapping[str, str] | None = None
) -> tuple[int, Headers, bytes]:
    """Status, headers and body of an error."""
    headers: Headers = [(b"content-type", JSON)]
    if isinstance(error, RateLimited):
        headers.append((b"retry-after", str(max(math.ceil(error.retry_after), 1)).encode()))
    if error.http_status == 401 and "www-authenticate" not in (extra or {}):
        headers.append((b"www-authenticate", b'Bearer realm="llmc"'))
    headers += [(name.lower().encode(), value.encode()) for name, value in (extra or {}).items()]
    body = msgspec.json.encode(error.envelope(correlation_id))
    return error.http_status, [*headers, (b"content-length", str(len(body)).encode())], body
