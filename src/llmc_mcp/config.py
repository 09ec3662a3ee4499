"""Every setting, typed, with its default; one tree for the whole server."""

import msgspec


class Server(msgspec.Struct, forbid_unknown_fields=True):
    """[mcp.server]"""

    transport: str = "stdio"
    result_format: str = "auto"


class Tools(msgspec.Struct, forbid_unknown_fields=True):
    """[mcp.tools]"""

    allowed_roots: tuple[str, ...] = ()
    read_timeout: float = 10.0


class Hybrid(msgspec.Struct, forbid_unknown_fields=True):
    """[mcp.hybrid]"""

    promoted_tools: tuple[str, ...] = ("stat", "linux_search_content")
    bootstrap_budget_warning: int = 15_000


class Limits(msgspec.Struct, forbid_unknown_fields=True):
    """[mcp.limits]"""

    max_reply_bytes: int = 10_000
    max_reply_bytes_cap: int = 200_000
    max_line_bytes: int = 4_000
    max_slice_bytes: int = 1 << 20
    count_lines_max_bytes: int = 256 << 20
    hash_max_bytes: int = 16 << 20
    max_image_bytes: int = 1 << 20
    max_request_bytes: int = 16 << 20
    max_list_entries: int = 2_000
    search_count_cap: int = 10_000
    workers: int = 8
    max_queued_calls: int = 1_000


class Observability(msgspec.Struct, forbid_unknown_fields=True):
    """[mcp.observability]"""

    enabled: bool = True
    log_format: str = "json"
    log_level: str = "info"


class Features(msgspec.Struct, forbid_unknown_fields=True):
    """[mcp.linux_ops.features]"""

    fs_enabled: bool = True


class LinuxOps(msgspec.Struct, forbid_unknown_fields=True):
    """[mcp.linux_ops]"""

    features: Features = msgspec.field(default_factory=Features)


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """[mcp]"""

    mode: str = "hybrid"
    server: Server = msgspec.field(default_factory=Server)
    tools: Tools = msgspec.field(default_factory=Tools)
    hybrid: Hybrid = msgspec.field(default_factory=Hybrid)
    limits: Limits = msgspec.field(default_factory=Limits)
    observability: Observability = msgspec.field(default_factory=Observability)
    linux_ops: LinuxOps = msgspec.field(default_factory=LinuxOps)

    def lean_replies(self) -> bool:
        """Whether replies are lean text (a line of meta, then the raw body) rather than JSON."""
        if self.server.result_format == "auto":
            return self.mode != "classic"
        return self.server.result_format == "lean"
