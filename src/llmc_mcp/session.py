"""Who calls: taken from what the client and the configuration say, never inferred."""

import msgspec


class Session(msgspec.Struct, frozen=True):
    """The caller of a tool. `principal` owns what the call leaves behind."""

    principal: str
    session_id: str
    agent_id: str = "unknown"
    model: str = "unknown"
    scopes: frozenset[str] | None = None  # None: everything, as for the user's own process on stdio
    limited: bool = False  # whether rate and concurrency limits apply: to HTTP principals

    def may(self, scope: str) -> bool:
        """Whether the caller's token covers what a tool needs."""
        return self.scopes is None or scope in self.scopes
