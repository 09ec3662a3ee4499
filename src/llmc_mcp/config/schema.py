"""Every setting, typed, with its default, its meaning and who may change it; one tree for the whole server.

To add a setting, add a field: `key` says in one line what it does and what a configuration file that came with
somebody's repository may do to it. Loading, `llmc config show` and DOCS/configuration.md follow by themselves.
"""

from __future__ import annotations  # what stands beside a key is evaluated when first asked for, not at every start

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from ..policy import PROTECTED_NAMES
from ..store.data_dir import data_directory as data_directory

# What a workspace's own file, which nobody vouched for, may do to a setting. It may only tighten.
Rule = Literal["free", "smaller", "off", "on", "fewer", "more", "beneath", "stricter", "operator"]
RULES: dict[Rule, str] = {
    "free": "set it",
    "smaller": "lower it",
    "off": "switch it off",
    "on": "switch it on",
    "fewer": "shorten the list",
    "more": "extend the list",
    "beneath": "name folders below the roots in force",
    "stricter": "choose a stricter value",
    "operator": "not touch it",
}

Names = tuple[str, ...]


def key(
    doc: str, rule: Rule, *, ge: float | None = None, le: float | None = None, secret: bool = False
) -> msgspec.Meta:
    """What stands beside a setting's type; a `secret` value may hold a password and is never shown whole."""
    return msgspec.Meta(ge=ge, le=le, description=doc, extra={"rule": rule, "secret": secret})


def amount(doc: str, rule: Rule = "smaller") -> msgspec.Meta:
    """A number above zero, and small enough for any clock or buffer."""
    return msgspec.Meta(gt=0, le=1 << 53, description=doc, extra={"rule": rule})


def one_of(doc: str, rule: Rule, *choices: str) -> msgspec.Meta:
    """One of a few words; for the rule `stricter` they are written strictest first."""
    return msgspec.Meta(description=doc, extra={"rule": rule, "choices": choices})


class Section(msgspec.Struct, forbid_unknown_fields=True):
    """A table of the configuration; the first line of its docstring is its name."""


# The sandbox is the boundary, not this list: it keeps an agent to the tools of a developer's day.
DEVELOPERS_DAY: Names = (
    *("bash", "sh", "dash", "zsh"),
    *("awk", "gawk", "mawk", "grep", "egrep", "fgrep", "rg", "find", "fd", "sed", "jq", "xargs", "tree", "which"),
    *("basename", "cat", "chmod", "cksum", "cmp", "comm", "cp", "cut", "date", "dd", "df", "diff", "dirname", "du"),
    *("echo", "env", "expand", "expr", "false", "file", "fold", "head", "hexdump", "id", "install", "join", "ln"),
    *("ls", "md5sum", "mkdir", "mktemp", "mv", "nl", "nproc", "numfmt", "od", "paste", "patch", "printenv"),
    *("printf", "pwd", "readlink", "realpath", "rm", "rmdir", "seq", "sha1sum", "sha256sum", "sha512sum", "shuf"),
    *("sleep", "sort", "split", "stat", "strings", "tac", "tail", "tee", "test", "timeout", "touch", "tr", "true"),
    *("truncate", "uname", "uniq", "unexpand", "wc", "whoami", "xxd", "base64", "less", "sqlite3"),
    *("git", "make", "cmake", "ninja", "gcc", "g++", "cc", "c++", "clang", "clang++", "ar", "ld", "nm", "objdump"),
    *("python", "python3", "pip", "pip3", "uv", "uvx", "pytest", "ruff", "mypy", "pyright", "black", "tox"),
    *("pre-commit", "node", "npm", "npx", "yarn", "pnpm", "tsc", "cargo", "rustc", "rustfmt", "go", "gofmt"),
    *("tar", "gzip", "gunzip", "zcat", "bzip2", "xz", "zstd", "zip", "unzip"),
)


class Server(Section):
    """[mcp.server]"""

    transport: Annotated[str, one_of("how clients reach the server", "operator", "stdio", "http")] = "stdio"
    host: Annotated[str, key("address that HTTP listens on", "operator")] = "127.0.0.1"
    port: Annotated[int, key("port that HTTP listens on", "operator", ge=0, le=65535)] = 8080
    allowed_hosts: Annotated[Names, key("more names that clients may call the server by", "operator")] = ()
    allowed_origins: Annotated[Names, key("web pages that may use the server, as scheme://host", "operator")] = ()
    tls_enabled: Annotated[bool, key("refused when true: let a reverse proxy do TLS", "operator")] = False
    result_format: Annotated[
        str, one_of("how replies look; auto: json in classic mode, else lean text", "free", "auto", "json", "lean")
    ] = "auto"


class Auth(Section):
    """[mcp.auth]"""

    mode: Annotated[str, one_of("how HTTP clients prove who they are", "operator", "token")] = "token"
    header: Annotated[str, key("request header that carries the token", "operator")] = "X-LLMC-Token"
    token_env: Annotated[str, key("environment variable that holds the token", "operator")] = "LLMC_MCP_TOKEN"  # noqa: S105 - a variable, no token
    allow_unauthenticated: Annotated[bool, key("serve HTTP without a token", "off")] = False


class Tools(Section):
    """[mcp.tools]"""

    allowed_roots: Annotated[Names, key("folders the tools may reach; none: the working directory", "beneath")] = ()
    read_timeout: Annotated[float, amount("seconds for one call of a file or search tool")] = 10.0
    exec_timeout: Annotated[float, amount("seconds for one run_cmd")] = 30.0
    idle_timeout: Annotated[float, amount("seconds before an idle HTTP connection is closed")] = 60.0
    enable_run_cmd: Annotated[bool, key("offer run_cmd", "off")] = True
    run_cmd_allowlist: Annotated[Names, key("binaries that commands may start", "fewer")] = DEVELOPERS_DAY
    allow_outbound_network: Annotated[bool, key("let commands use the network", "off")] = False
    executables: Annotated[dict[str, str], key("programs offered as tools: name = path", "operator")] = msgspec.field(
        default_factory=dict[str, str]
    )
    dynamic_tools: Annotated[bool, key("list tool_search and call_tool", "off")] = False


class SandboxSection(Section):
    """[mcp.sandbox]"""

    level: Annotated[
        str,
        one_of(
            "how commands are confined; auto: the strongest that works here",
            "stricter",
            "read_only",
            "workspace",
            "auto",
            "landlock",
            "off",
        ),
    ] = "auto"
    extra_read: Annotated[Names, key("paths outside the roots that commands may read", "fewer")] = ()
    extra_write: Annotated[Names, key("paths outside the roots that commands may write", "fewer")] = ()
    deny_read: Annotated[Names, key("paths that neither commands nor file tools may read", "more")] = ()
    run_as: Annotated[str, key("user that commands run as when the server is root", "operator")] = ""
    max_processes: Annotated[int, amount("processes that commands may run together")] = 1_024
    max_memory_mb: Annotated[int, amount("private memory of one process of a command, in MB")] = 8_192
    max_file_mb: Annotated[int, amount("size of one file that a command writes, in MB")] = 4_096
    max_tmp_mb: Annotated[int, amount("size of a command's private /tmp, in MB")] = 1_024


class Policy(Section):
    """[mcp.policy]"""

    secret_names: Annotated[Names, key("files that no file or search tool reads", "more")] = (
        *(".env", ".env.*", "*.pem", "id_*", ".netrc", ".pgpass", ".git-credentials"),
        *(".aws/credentials", ".ssh/*", ".kube/config", ".docker/config.json"),
    )
    secret_exceptions: Annotated[Names, key("files that secret_names does not mean", "fewer")] = (
        *("*.pub", ".env.example", ".env.sample", ".env.template", ".env.dist"),
        *("id_*.py", "id_*.js", "id_*.ts", "id_*.tsx", "id_*.go", "id_*.rs", "id_*.java", "id_*.c", "id_*.h"),
        *("id_*.cpp", "id_*.rb", "id_*.php", "id_*.sql", "id_*.md", "id_*.html", "id_*.css", "id_*.json"),
        *(".ssh/known_hosts", ".ssh/config"),
    )
    protected_names: Annotated[
        Names, key("files that no file tool writes, and whose change by a command is reported", "more")
    ] = PROTECTED_NAMES
    hard_links: Annotated[
        str, one_of("files with several names that another user owns", "stricter", "refuse_foreign", "allow")
    ] = "refuse_foreign"
    cross_mounts: Annotated[bool, key("follow mount points below a root", "off")] = True


class Hybrid(Section):
    """[mcp.hybrid]"""

    promoted_tools: Annotated[Names, key("tools that hybrid mode lists beside read_file and list_dir", "free")] = (
        "linux_fs_write",
        "linux_fs_edit",
        "run_cmd",
    )
    include_execute_code: Annotated[bool, key("list execute_code in hybrid mode", "off")] = True
    bootstrap_budget_warning: Annotated[int, amount("characters of tools/list that bring a warning", "free")] = 15_000


class CodeExecution(Section):
    """[mcp.code_execution]"""

    enabled: Annotated[bool, key("a file without a mode means code_execution mode, not classic", "off")] = False
    engine: Annotated[
        str, one_of("what runs the code: Monty, or CPython in the sandbox", "stricter", "monty", "python")
    ] = "monty"
    timeout: Annotated[float, amount("seconds for one execute_code")] = 30.0
    max_memory_mb: Annotated[int, amount("memory of one execute_code, in MB")] = 256
    max_output_bytes: Annotated[int, amount("bytes of what one execute_code prints that are kept")] = 1 << 20


class RagSection(Section):
    """[mcp.rag]"""

    jit_context_enabled: Annotated[bool, key("index and search code", "off")] = True
    default_scope: Annotated[str, one_of("what a search covers", "free", "repo", "docs", "both")] = "repo"
    top_k: Annotated[int, amount("snippets of one search")] = 3
    token_budget: Annotated[int, amount("tokens of one search")] = 600
    max_k: Annotated[int, amount("most snippets that a call may ask for")] = 20
    max_token_budget: Annotated[int, amount("most tokens that a call may ask for")] = 4_000
    max_file_bytes: Annotated[int, amount("size of a file up to which it is indexed")] = 1 << 20
    max_files: Annotated[int, amount("most files of a root that are indexed")] = 200_000
    embedding: Annotated[str, key("embedding model; auto, none, or a name", "operator")] = "auto"


class Limits(Section):
    """[mcp.limits]"""

    max_reply_bytes: Annotated[int, amount("bytes of one reply")] = 10_000
    max_reply_bytes_cap: Annotated[int, amount("most bytes of a reply that a call may ask for")] = 200_000
    max_line_bytes: Annotated[int, amount("bytes of one line before it is cut")] = 4_000
    max_slice_bytes: Annotated[int, amount("bytes that one read of a file holds in memory")] = 1 << 20
    count_lines_max_bytes: Annotated[int, amount("size of a file up to which its lines are counted")] = 256 << 20
    hash_max_bytes: Annotated[int, amount("size of a file up to which its sha256 is computed")] = 16 << 20
    max_image_bytes: Annotated[int, amount("size of an image up to which it is sent")] = 1 << 20
    max_request_bytes: Annotated[int, amount("bytes of one request")] = 16 << 20
    max_header_bytes: Annotated[int, amount("bytes of an HTTP request's headers")] = 16_384
    receive_timeout: Annotated[float, amount("seconds for an HTTP client to send its headers, or its body")] = 15.0
    drain_timeout: Annotated[float, amount("seconds for HTTP calls under way when the server is told to stop")] = 20.0
    max_connections: Annotated[int, amount("HTTP connections at the same time")] = 4_096
    max_tree_entries: Annotated[int, amount("entries of a tree that a reply shows at most")] = 500
    max_list_entries: Annotated[int, amount("entries that one listing looks at")] = 2_000
    list_count_cap: Annotated[int, amount("entries up to which a listing looks")] = 100_000
    search_count_cap: Annotated[int, amount("hits up to which a search counts")] = 10_000
    # Every server of a user shares the store: a repository's file must not empty it.
    handle_max_bytes: Annotated[int, amount("size of a file up to which a handle keeps a copy")] = 2 << 20
    handles_max_total_bytes: Annotated[int, amount("bytes of all handles together", "operator")] = 512 << 20
    handle_ttl_hours: Annotated[float, amount("hours before a handle expires", "operator")] = 24.0
    journal_max_bytes: Annotated[int, amount("bytes of a file that one change may replace with undo")] = 64 << 20
    journal_max_total_bytes: Annotated[int, amount("bytes that the journal keeps for undo", "operator")] = 1 << 30
    trash_max_total_bytes: Annotated[int, amount("bytes that the trash keeps", "operator")] = 4 << 30
    lease_ttl_sec: Annotated[float, amount("seconds before a change under way may be taken over", "operator")] = 30.0
    spool_max_bytes: Annotated[int, amount("bytes of one command's output that a handle keeps")] = 64 << 20
    code_max_calls: Annotated[int, amount("tool calls that one execute_code may make")] = 1_000
    code_result_bytes: Annotated[int, amount("bytes of one tool's result inside execute_code")] = 1 << 20
    edit_max_bytes: Annotated[int, amount("size of a file up to which it is edited or patched")] = 2 << 20
    lease_wait_sec: Annotated[float, amount("seconds that a change waits for another of the same file")] = 5.0
    workers: Annotated[int, amount("calls that run at the same time")] = 8
    max_queued_calls: Annotated[int, amount("calls under way before more are refused")] = 1_000
    rate_limit_rps: Annotated[float, amount("HTTP calls a second and token")] = 10.0
    rate_limit_burst: Annotated[int, amount("HTTP calls at once before the rate limit bites")] = 20
    concurrency_per_token: Annotated[int, amount("HTTP calls under way per token")] = 8


class Observability(Section):
    """[mcp.observability]"""

    enabled: Annotated[bool, key("write a log to stderr, and keep statistics and audits of calls", "on")] = True
    log_format: Annotated[str, one_of("how a log line looks", "free", "json", "text")] = "json"
    log_level: Annotated[str, one_of("the least that is logged", "free", "debug", "info", "warning", "error")] = "info"
    include_correlation_id: Annotated[bool, key("correlation ids in the log", "on")] = True
    metrics_enabled: Annotated[bool, key("collect metrics", "free")] = True
    metrics_prometheus_enabled: Annotated[bool, key("serve metrics over HTTP", "off")] = True
    metrics_path: Annotated[str, key("where metrics are served", "operator")] = "/metrics"
    csv_token_audit_enabled: Annotated[bool, key("write a row per call to csv_path", "operator")] = False
    csv_path: Annotated[
        str, key("file for the token audit; a relative one starts at the data directory", "operator")
    ] = "./artifacts/token_audit.csv"
    audit_enabled: Annotated[bool, key("write every call that may change something to the audit", "on")] = True
    retention_days: Annotated[int, key("days that records are kept; 0: for ever", "operator", ge=0)] = 0
    otel_enabled: Annotated[bool, key("send a span per call by OpenTelemetry, where the extra is there", "off")] = True


class SessionDefaults(Section):
    """[mcp.session]"""

    default_agent_id: Annotated[str, key("agent name of a client that gives none", "operator")] = "unknown"
    default_model: Annotated[str, key("model name of a client that gives none", "operator")] = "unknown"
    default_budget_profile: Annotated[str, key("budget profile of a client that gives none", "operator")] = "unknown"


class Te(Section):
    """[mcp.te]"""

    enabled: Annotated[bool, key("enrich what te and te_run show; false: they run commands as they are", "off")] = True
    script_path: Annotated[str, key("no longer has a meaning: te is part of this package", "operator")] = ""
    json_mode: Annotated[bool, key("te_run answers as JSON; false: as the text that te prints", "free")] = True
    timeout: Annotated[float, amount("seconds for one te_run")] = 30.0
    passthrough_on_failure: Annotated[
        bool, key("output that cannot be enriched is given as it is; false: that is an error", "off")
    ] = True
    budgets: Annotated[
        dict[str, int], key("tokens a session may read, by budget profile or agent: name = tokens", "operator")
    ] = msgspec.field(default_factory=dict[str, int])
    default_budget: Annotated[int, amount("tokens a session of an agent that budgets does not name may read")] = 50_000
    reply_tokens: Annotated[int, amount("most tokens that te shows of one command")] = 2_500


class ResourcesSection(Section):
    """[mcp.resources]"""

    sidecars: Annotated[Names, key("documents offered as MCP resources", "fewer")] = (
        "DOCS/agents.core.min.md",
        "DOCS/contracts.env.min.md",
    )


class StoreSettings(Section):
    """[mcp.store]"""

    url: Annotated[str, key("where state is kept; sqlite: in the data directory", "operator", secret=True)] = "sqlite"


class Docker(Section):
    """[mcp.docker]"""

    data_volume: Annotated[str, key("no longer has a meaning: LLMC_DATA_DIR names the folder", "operator")] = ""
    persist_telemetry: Annotated[bool, key("keep telemetry in the data directory", "operator")] = True
    persist_token_audit: Annotated[bool, key("keep the token audit in the data directory", "operator")] = True


class Roots(Section):
    """[mcp.linux_ops.roots]"""

    allowed_roots: Annotated[Names, key("as mcp.tools.allowed_roots, and before it", "beneath")] = ()
    enforce_roots: Annotated[bool, key("false: the root is /", "on")] = True


class Commands(Section):
    """[mcp.linux_ops.commands]"""

    allowed_binaries: Annotated[Names, key("more binaries that commands may start", "fewer")] = ()
    unsafe_binaries: Annotated[Names, key("binaries that are refused unless allow_unsafe", "more")] = ()
    allow_unsafe: Annotated[bool, key("allow unsafe_binaries too", "off")] = False
    allowed_env: Annotated[Names, key("variables that an interactive process may be given", "fewer")] = (
        *("TERM", "LANG", "LC_ALL", "TZ", "COLUMNS", "LINES", "PS1", "NO_COLOR", "FORCE_COLOR", "CI", "DEBUG"),
        *("LOG_LEVEL", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONWARNINGS", "PYTHONASYNCIODEBUG"),
        *("DJANGO_SETTINGS_MODULE", "FLASK_APP", "NODE_ENV", "RUST_BACKTRACE", "RUST_LOG", "GOFLAGS", "PORT"),
    )


class ProcessLimits(Section):
    """[mcp.linux_ops.process_limits]"""

    max_procs_per_session: Annotated[int, amount("interactive processes of one session")] = 4
    max_procs_total: Annotated[int, amount("interactive processes together")] = 32
    default_timeout_sec: Annotated[float, amount("seconds for a call of a tool that has no setting of its own")] = 60.0
    max_timeout_sec: Annotated[float, amount("seconds that no call may exceed")] = 600.0
    idle_reap_sec: Annotated[float, amount("seconds before an idle interactive process is ended")] = 1_800.0
    allow_kill_other_users: Annotated[bool, key("list and signal processes of other users", "off")] = False
    list_all_users: Annotated[bool, key("list processes of other users", "off")] = False


class Features(Section):
    """[mcp.linux_ops.features]"""

    fs_enabled: Annotated[bool, key("file and search tools", "off")] = True
    proc_enabled: Annotated[bool, key("command and process tools", "off")] = True
    repl_enabled: Annotated[bool, key("interactive processes", "off")] = True
    system_enabled: Annotated[bool, key("system tools", "off")] = True
    logs_enabled: Annotated[bool, key("the system log tool", "off")] = False


class LinuxOps(Section):
    """[mcp.linux_ops]"""

    roots: Roots = msgspec.field(default_factory=Roots)
    commands: Commands = msgspec.field(default_factory=Commands)
    process_limits: ProcessLimits = msgspec.field(default_factory=ProcessLimits)
    features: Features = msgspec.field(default_factory=Features)


class Config(Section):
    """[mcp]"""

    enabled: Annotated[bool, key("false: the server refuses to start", "off")] = True
    config_version: Annotated[str, one_of("the version of this layout", "free", "v0")] = "v0"
    mode: Annotated[
        str,
        one_of(
            "which tools are listed: all, a small set, or the fewest", "free", "classic", "hybrid", "code_execution"
        ),
    ] = "hybrid"
    server: Server = msgspec.field(default_factory=Server)
    auth: Auth = msgspec.field(default_factory=Auth)
    tools: Tools = msgspec.field(default_factory=Tools)
    sandbox: SandboxSection = msgspec.field(default_factory=SandboxSection)
    policy: Policy = msgspec.field(default_factory=Policy)
    hybrid: Hybrid = msgspec.field(default_factory=Hybrid)
    code_execution: CodeExecution = msgspec.field(default_factory=CodeExecution)
    rag: RagSection = msgspec.field(default_factory=RagSection)
    limits: Limits = msgspec.field(default_factory=Limits)
    observability: Observability = msgspec.field(default_factory=Observability)
    session: SessionDefaults = msgspec.field(default_factory=SessionDefaults)
    te: Te = msgspec.field(default_factory=Te)
    resources: ResourcesSection = msgspec.field(default_factory=ResourcesSection)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    docker: Docker = msgspec.field(default_factory=Docker)
    linux_ops: LinuxOps = msgspec.field(default_factory=LinuxOps)

    def lean_replies(self) -> bool:
        """Whether replies are lean text (a line of meta, then the raw body) rather than JSON."""
        if self.server.result_format == "auto":
            return self.mode != "classic"
        return self.server.result_format == "lean"

    def configured_roots(self) -> tuple[Names, str]:
        """The roots as they are written, none when they are not, and the key that decided."""
        roots = self.linux_ops.roots
        if not roots.enforce_roots:
            return ("/",), "linux_ops.roots.enforce_roots"
        if roots.allowed_roots:
            return roots.allowed_roots, "linux_ops.roots.allowed_roots"
        return self.tools.allowed_roots, "tools.allowed_roots"

    def allowed_binaries(self) -> frozenset[str]:
        """Every binary that a command may start."""
        commands = self.linux_ops.commands
        allowed = frozenset(self.tools.run_cmd_allowlist) | frozenset(commands.allowed_binaries)
        return allowed if commands.allow_unsafe else allowed - frozenset(commands.unsafe_binaries)

    def capped_seconds(self, seconds: float) -> float:
        """A time limit, no longer than any call may take."""
        return min(seconds, self.linux_ops.process_limits.max_timeout_sec)


# --- accepted, not in force in this version ------------------------------------------------------------------------
# A section or a key, and why setting it changes nothing. Whoever writes the code that reads one deletes its line.
NOT_IN_FORCE = {
    "store.url": "state is kept in SQLite, in the data directory; there is no other store yet",
    "te.script_path": "te is part of this package; remove the key",
    "docker.data_volume": "the environment variable LLMC_DATA_DIR names the data directory; remove the key",
    "docker": "what is kept is kept in the data directory, which is the volume to mount",
}


# --- the tree as a list of keys ------------------------------------------------------------------------------------


class SettingKey(NamedTuple):
    """One setting: its dotted name below [mcp], and everything declared beside it."""

    name: str
    type: Any
    default: Any
    doc: str
    rule: Rule
    secret: bool
    choices: Names

    @property
    def bare_type(self) -> Any:
        """The type without what is declared beside it."""
        return get_args(self.type)[0] if get_origin(self.type) is Annotated else self.type

    @property
    def not_in_force(self) -> str:
        """Why setting it changes nothing; empty when it is in force."""
        return NOT_IN_FORCE.get(self.name) or NOT_IN_FORCE.get(self.name.partition(".")[0], "")

    def visible(self, value: object) -> object:
        """A value without what may be a password."""
        if not self.secret or "@" not in str(value):
            return value
        before, _, after = str(value).rpartition("@")
        return f"{before.partition('://')[0]}://***@{after}"

    def shown(self, value: object) -> str:
        """A value as a person may see it, written like TOML."""
        try:
            return msgspec.json.encode(self.visible(value)).decode()
        except OverflowError:  # JSON has no numbers of that size
            return str(value)


@cache
def sections() -> Mapping[str, Section]:
    """The sections by name, each with its defaults; the top one's name is empty."""
    return dict(_sections_below("", Config()))


def _sections_below(name: str, section: Section) -> Iterator[tuple[str, Section]]:
    yield name, section
    for field in section.__struct_fields__:
        value: object = getattr(section, field)
        if isinstance(value, Section):
            yield from _sections_below(f"{name}.{field}".lstrip("."), value)


@cache
def _annotations(section: type[Section]) -> Mapping[str, Any]:
    return get_type_hints(section, include_extras=True)


def find_key(name: str) -> SettingKey | None:
    """A setting by its dotted name; one section's types are evaluated, not all."""
    prefix, _, field = name.rpartition(".")
    section = sections().get(prefix)
    if section is None or name in sections() or field not in section.__struct_fields__:
        return None
    annotation = _annotations(type(section))[field]
    meta = next((part for part in get_args(annotation) if isinstance(part, msgspec.Meta)), msgspec.Meta())
    declared = meta.extra or {}
    return SettingKey(
        name,
        annotation,
        getattr(section, field),
        meta.description or "",
        declared.get("rule", "operator"),  # what says nothing about itself is the operator's alone
        declared.get("secret", False),
        declared.get("choices", ()),
    )


@cache
def keys() -> Mapping[str, SettingKey]:
    """Every setting by name."""
    names = (f"{at}.{field}".lstrip(".") for at, section in sections().items() for field in section.__struct_fields__)
    return {name: found for name in names if (found := find_key(name)) is not None}


def get_key(config: Config, name: str) -> Any:
    """The value of a setting by its dotted name."""
    value: object = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def put_key(config: Config, name: str, value: object) -> None:
    """Set a setting by its dotted name; the value has its type already."""
    section, _, field = name.rpartition(".")
    setattr(get_key(config, section) if section else config, field, value)
