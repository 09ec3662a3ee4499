"""Who calls: taken from what the client and the configuration say, never inferred."""

import msgspec


class Session(msgspec.Struct, frozen=True):
    """The caller of a tool. `principal` owns what the call leaves behind."""

    principal: str
    session_id: str
    agent_id: str = "unknown"
    model: str = "unknown"
