"""The caller, from what the client and the configuration state; nothing is inferred.

The source closest to the call wins: its own `_meta`, then the session that the transport or a REST body names, then
`clientInfo` of the handshake, then the configuration.
"""

from fnmatch import fnmatchcase

import msgspec

PERSON = "llmc"  # the agent_id of calls that a person makes by the command of that name


class Session(msgspec.Struct, frozen=True):
    """The caller of a tool. `principal` owns what the call leaves behind."""

    principal: str
    session_id: str
    agent_id: str = "unknown"
    model: str = "unknown"
    scopes: frozenset[str] | None = None  # None: everything, as for the user's own process on stdio
    limited: bool = False  # whether rate and concurrency limits apply: to HTTP principals
    budget_profile: str = "unknown"  # what the call is charged to; the operator gives profiles budgets
    tools: tuple[str, ...] = ()  # patterns of the tools that the token may call; none: all that its scopes cover

    def environment(self) -> dict[bytes, bytes]:
        """The environment variables that identify the caller to a command."""
        variables = {b"TE_AGENT_ID": self.agent_id, b"TE_SESSION_ID": self.session_id, b"TE_MODEL": self.model}
        return {name: value.replace("\0", "").encode("utf-8", "replace") for name, value in variables.items()}

    def may(self, scope: str) -> bool:
        """Whether the caller's token covers what a tool needs."""
        return self.scopes is None or scope in self.scopes

    def may_call(self, tool: str) -> bool:
        """Whether the caller's token is for this tool."""
        return not self.tools or any(fnmatchcase(tool, pattern) for pattern in self.tools)
