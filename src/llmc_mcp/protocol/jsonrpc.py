"""JSON-RPC: the codes of errors that concern the request itself, and the error that carries them."""

from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
RESOURCE_NOT_FOUND = -32002  # of the handshake era; the stateless one says INVALID_PARAMS
SERVER_ERROR = -32000

Params = dict[str, Any]


class ProtocolError(Exception):
    """A JSON-RPC error: the request itself is wrong. A tool that fails is a result, not this."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    def as_error(self) -> Params:
        """The error object of a reply."""
        return {"code": self.code, "message": self.message, **({} if self.data is None else {"data": self.data})}
