"""All settings: type, default, description, and who may change them.

To add a setting, add a field. `key` describes it in one line and states how an untrusted configuration file, one that
came with a repository, may change it. Loading, `llmc config show` and DOCS/configuration.md need no further change.
"""

from __future__ import annotations  # the annotations are evaluated on first use, not at every start

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from ..policy import PROTECTED_NAMES
from ..store.data_dir import data_directory as data_directory

# How an untrusted file, the workspace's own, may change a setting: it may only tighten.
Rule = Literal["free", "smaller", "off", "on", "fewer", "more", "beneath", "stricter", "rules", "operator"]
RULES: dict[Rule, str] = {
    "free": "set it",
    "smaller": "lower it",
    "off": "switch it off",
    "on": "switch it on",
    "fewer": "shorten the list",
    "more": "extend the list",
    "beneath": "name folders below the roots in force",
    "stricter": "choose a stricter value",
    "rules": "add rules that ask or deny",
    "operator": "not touch it",
}

Names = tuple[str, ...]


def key(
    doc: str, rule: Rule, *, ge: float | None = None, le: float | None = None, secret: bool = False
) -> msgspec.Meta:
    """The metadata of a setting; a `secret` value may contain a password and is never shown in full."""
    return msgspec.Meta(ge=ge, le=le, description=doc, extra={"rule": rule, "secret": secret})


def amount(doc: str, rule: Rule = "smaller") -> msgspec.Meta:
    """The metadata of a positive number, small enough for any clock or buffer."""
    return msgspec.Meta(gt=0, le=1 << 53, description=doc, extra={"rule": rule})


def one_of(doc: str, rule: Rule, *choices: str) -> msgspec.Meta:
    """The metadata of a choice between words; for the rule `stricter`, list the strictest first."""
    return msgspec.Meta(description=doc, extra={"rule": rule, "choices": choices})


class Section(msgspec.Struct, forbid_unknown_fields=True):
    """A table of the configuration; its docstring is its header in TOML."""


# Everyday developer tools. The sandbox is the security boundary, not this list.
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
    *("bc", "column", "ed", "iconv", "kill", "nice", "nohup", "pgrep", "pkill", "ps", "rev", "setsid"),
    *("stdbuf", "sync", "time", "yes"),
    *("pre-commit", "node", "npm", "npx", "yarn", "pnpm", "tsc", "cargo", "rustc", "rustfmt", "go", "gofmt"),
    *("tar", "gzip", "gunzip", "zcat", "bzip2", "xz", "zstd", "zip", "unzip"),
)


class Server(Section):
    """[mcp.server]"""

    transport: Annotated[str, one_of("how clients reach the server", "operator", "stdio", "http")] = "stdio"
    host: Annotated[str, key("address to listen on for HTTP", "operator")] = "127.0.0.1"
    port: Annotated[int, key("port to listen on for HTTP; 0: any free port", "operator", ge=0, le=65535)] = 8080
    allowed_hosts: Annotated[Names, key("additional names accepted in the Host header", "operator")] = ()
    allowed_origins: Annotated[Names, key("origins of allowed web pages, as scheme://host", "operator")] = ()
    replica_url: Annotated[
        str, key("where other replicas on the same store reach this one; empty: from host and port", "operator")
    ] = ""
    tls_enabled: Annotated[bool, key("must be false: terminate TLS in a reverse proxy", "operator")] = False
    result_format: Annotated[
        str, one_of("format of replies; auto: json in classic mode, else lean text", "free", "auto", "json", "lean")
    ] = "auto"


class Auth(Section):
    """[mcp.auth]"""

    mode: Annotated[str, one_of("how HTTP clients authenticate", "operator", "token")] = "token"
    header: Annotated[str, key("request header that carries the token", "operator")] = "X-LLMC-Token"
    token_env: Annotated[str, key("environment variable that holds the token", "operator")] = "LLMC_MCP_TOKEN"  # noqa: S105 - the name of a variable, not a token
    allow_unauthenticated: Annotated[bool, key("serve HTTP without a token", "off")] = False


class OAuth(Section):
    """[mcp.oauth]"""

    issuer: Annotated[str, key("URL of the issuer whose access tokens are taken; empty: none", "operator")] = ""
    jwks_url: Annotated[str, key("URL of its keys; empty: as its metadata says", "operator")] = ""
    resource: Annotated[str, key("URL of this server's /mcp for clients; empty: as requested", "operator")] = ""
    audience: Annotated[str, key("audience that tokens must have; empty: the resource", "operator")] = ""
    scopes: Annotated[dict[str, str], key("the issuer's scope = ours, space separated", "operator")] = msgspec.field(
        default_factory=dict[str, str]
    )


class Tools(Section):
    """[mcp.tools]"""

    allowed_roots: Annotated[Names, key("folders the tools may access; empty: the working directory", "beneath")] = ()
    client_roots: Annotated[bool, key("serve only the client's open folders, within the roots", "on")] = True
    read_timeout: Annotated[float, amount("time limit of a call of a file or search tool, in seconds")] = 10.0
    exec_timeout: Annotated[float, amount("time limit of a run_cmd without timeout and yield_after, in seconds")] = 30.0
    consent_timeout: Annotated[float, amount("seconds that a call waits for the user's consent")] = 300.0
    idle_timeout: Annotated[float, amount("seconds before an idle HTTP connection is closed")] = 60.0
    enable_run_cmd: Annotated[bool, key("offer run_cmd", "off")] = True
    run_cmd_allowlist: Annotated[Names, key("binaries that commands may start", "fewer")] = DEVELOPERS_DAY
    run_cmd_shell: Annotated[
        str,
        one_of(
            "a string with shell syntax: auto runs it through bash, never as plain words",
            "stricter",
            "never",
            "auto",
        ),
    ] = "auto"
    undo_commands: Annotated[bool, key("journal what commands change, so that it can be undone", "operator")] = True
    allow_outbound_network: Annotated[bool, key("let commands use the network, all of it", "off")] = False
    network: Annotated[
        str,
        one_of(
            "network of commands; auto: on as above, allowlist if it has entries, else off",
            "stricter",
            "off",
            "allowlist",
            "auto",
            "on",
        ),
    ] = "auto"
    network_allow: Annotated[Names, key("the allowlist: presets, host[:port], *.suffix, addresses", "fewer")] = ()
    executables: Annotated[dict[str, str], key("programs offered as tools: name = path", "operator")] = msgspec.field(
        default_factory=dict[str, str]
    )
    dynamic_tools: Annotated[bool, key("list tool_search and call_tool", "off")] = False


class SandboxSection(Section):
    """[mcp.sandbox]"""

    level: Annotated[
        str,
        one_of(
            "how commands are confined; auto: the strongest level that works on this machine",
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
    toolchains: Annotated[
        str | Names,
        one_of("toolchains in the home that commands may use: auto, none, or folders", "operator", "auto", "none"),
    ] = "auto"
    deny_read: Annotated[Names, key("paths that neither commands nor file tools may read", "more")] = ()
    run_as: Annotated[str, key("user that commands run as when the server is root", "operator")] = ""
    forward_ports: Annotated[bool, key("let llmc ports pass a command's port on to your loopback", "operator")] = False
    max_processes: Annotated[int, amount("maximum number of processes of all commands together")] = 1_024
    max_memory_mb: Annotated[int, amount("maximum private memory of one process of a command, in MB")] = 8_192
    max_file_mb: Annotated[int, amount("maximum size of a file that a command writes, in MB")] = 4_096
    max_tmp_mb: Annotated[int, amount("size of a command's private /tmp, in MB")] = 1_024


# What a call may do that a person had better agree to. The tools say which of their calls do (`consent` of `@tool`).
RISKS: Names = ("recursive_delete", "unjournaled", "foreign_process", "push", "network")


class PolicyRule(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """One rule: it matches a call that meets all of its conditions. Names and paths are globs; empty: any."""

    do: Literal["allow", "ask", "deny"]
    tool: str = ""
    token: str = ""  # of a client, by its name; on stdio uid:N
    subject: str = ""  # of a client whose token an issuer signed
    path: str = ""
    program: str = ""
    host: str = ""
    when: Literal["", "reads", "changes"] = ""
    risk: Literal["", "recursive_delete", "unjournaled", "foreign_process", "push", "network"] = ""


class WorkspaceRule(PolicyRule, frozen=True, omit_defaults=True):
    """A rule of a workspace's own file: it is obeyed besides the operator's, and never in the place of one."""


class Policy(Section):
    """[mcp.policy]"""

    rules: Annotated[
        tuple[PolicyRule, ...], key("who may call what, also as [[mcp.policy]]; the first match decides", "rules")
    ] = ()
    ask: Annotated[Names, key("risks that ask a person where no rule matches", "more")] = RISKS

    secret_names: Annotated[Names, key("files that file and search tools refuse to read", "more")] = (
        *(".env", ".env.*", "*.pem", "id_*", ".netrc", ".pgpass", ".git-credentials"),
        *(".aws/credentials", ".ssh/*", ".kube/config", ".docker/config.json"),
    )
    secret_exceptions: Annotated[Names, key("exceptions to secret_names", "fewer")] = (
        *("*.pub", ".env.example", ".env.sample", ".env.template", ".env.dist"),
        *("id_*.py", "id_*.js", "id_*.ts", "id_*.tsx", "id_*.go", "id_*.rs", "id_*.java", "id_*.c", "id_*.h"),
        *("id_*.cpp", "id_*.rb", "id_*.php", "id_*.sql", "id_*.md", "id_*.html", "id_*.css", "id_*.json"),
        *(".ssh/known_hosts", ".ssh/config"),
    )
    protected_names: Annotated[
        Names, key("files that file tools refuse to write; commands that change one are reported", "more")
    ] = PROTECTED_NAMES
    hard_links: Annotated[
        str, one_of("hard links to files that another user owns", "stricter", "refuse_foreign", "allow")
    ] = "refuse_foreign"
    cross_mounts: Annotated[bool, key("access file systems mounted below a root", "off")] = True


class Hybrid(Section):
    """[mcp.hybrid]"""

    promoted_tools: Annotated[Names, key("tools that hybrid mode lists besides read_file and list_dir", "free")] = (
        "linux_fs_write",
        "linux_fs_edit",
        "run_cmd",
    )
    include_execute_code: Annotated[bool, key("list execute_code in hybrid mode", "off")] = True
    bootstrap_budget_warning: Annotated[int, amount("characters of tools/list that cause a warning", "free")] = 15_000


class CodeExecution(Section):
    """[mcp.code_execution]"""

    enabled: Annotated[bool, key("where nothing sets a mode: code_execution instead of hybrid", "off")] = False
    engine: Annotated[
        str, one_of("interpreter that runs the code: Monty, or CPython in the sandbox", "stricter", "monty", "python")
    ] = "monty"
    require_isolation: Annotated[
        bool,
        key("execute_code only in a container or where LLMC_ISOLATED=1 is set", "on"),
    ] = False
    timeout: Annotated[float, amount("time limit of execute_code, in seconds")] = 30.0
    max_memory_mb: Annotated[int, amount("memory limit of execute_code, in MB")] = 256
    max_output_bytes: Annotated[int, amount("maximum output of execute_code that is kept, in bytes")] = 1 << 20


class RagSection(Section):
    """[mcp.rag]"""

    jit_context_enabled: Annotated[bool, key("index and search code", "off")] = True
    default_scope: Annotated[str, one_of("default scope of a search", "free", "repo", "docs", "both")] = "repo"
    top_k: Annotated[int, amount("snippets that a search returns by default")] = 3
    token_budget: Annotated[int, amount("tokens that a search returns by default")] = 600
    max_k: Annotated[int, amount("maximum number of snippets that a call may request")] = 20
    max_token_budget: Annotated[int, amount("maximum number of tokens that a call may request")] = 4_000
    max_file_bytes: Annotated[int, amount("largest file that is indexed, in bytes")] = 1 << 20
    max_files: Annotated[int, amount("maximum number of files indexed per root")] = 200_000
    build_wait_sec: Annotated[float, amount("seconds a search waits for a first build to be complete")] = 2.0
    embedding: Annotated[str, key("embedding model: auto, none, or a name", "operator")] = "auto"
    roots: Annotated[Names, key("folders to index; empty: each root, of / or a home the project", "operator")] = ()
    share_max_mb: Annotated[
        int, key("largest index that servers share through PostgreSQL, in MB; 0: none", "smaller", ge=0, le=1 << 20)
    ] = 512


class Limits(Section):
    """[mcp.limits]"""

    max_reply_bytes: Annotated[int, amount("maximum size of a reply, in bytes")] = 10_000
    max_reply_bytes_cap: Annotated[int, amount("maximum reply size that a call may request, in bytes")] = 200_000
    max_line_bytes: Annotated[int, amount("length at which a line is cut, in bytes")] = 4_000
    max_slice_bytes: Annotated[int, amount("maximum part of a file that one read holds in memory, in bytes")] = 1 << 20
    count_lines_max_bytes: Annotated[int, amount("largest file whose lines are counted, in bytes")] = 256 << 20
    hash_max_bytes: Annotated[int, amount("largest file whose sha256 is computed, in bytes")] = 16 << 20
    max_image_bytes: Annotated[int, amount("largest image that is sent, in bytes")] = 1 << 20
    max_request_bytes: Annotated[int, amount("maximum size of a request, in bytes")] = 16 << 20
    max_header_bytes: Annotated[int, amount("maximum size of the headers of an HTTP request, in bytes")] = 16_384
    receive_timeout: Annotated[float, amount("seconds to receive an HTTP request's headers, or its body")] = 15.0
    drain_notice: Annotated[
        float,
        key("seconds that a stopping server takes HTTP calls though /ready says no", "smaller", ge=0),
    ] = 0.0
    drain_timeout: Annotated[float, amount("seconds for running HTTP calls to finish when the server stops")] = 20.0
    max_connections: Annotated[int, amount("maximum number of concurrent HTTP connections")] = 4_096
    max_tree_entries: Annotated[int, amount("maximum number of entries that linux_fs_list shows")] = 500
    max_list_entries: Annotated[int, amount("maximum number of entries that list_dir shows")] = 2_000
    list_count_cap: Annotated[int, amount("maximum number of entries that a listing visits")] = 100_000
    search_count_cap: Annotated[int, amount("number of hits at which a search stops counting")] = 10_000
    # All servers of a user share the store: a repository's file must not be able to empty it.
    handle_max_bytes: Annotated[int, amount("largest file that a handle keeps a copy of, in bytes")] = 2 << 20
    handles_max_total_bytes: Annotated[int, amount("maximum total size of handles, in bytes", "operator")] = 512 << 20
    handle_ttl_hours: Annotated[float, amount("hours before a handle expires", "operator")] = 24.0
    journal_max_bytes: Annotated[int, amount("largest file that a change may replace with undo, in bytes")] = 64 << 20
    command_undo_bytes: Annotated[int, amount("copies kept so that commands can be undone, in bytes")] = 512 << 20
    command_undo_files: Annotated[int, amount("files of a root that commands may change with undo")] = 200_000
    journal_max_total_bytes: Annotated[int, amount("maximum size of the undo journal, in bytes", "operator")] = 1 << 30
    trash_max_total_bytes: Annotated[int, amount("maximum size of the trash, in bytes", "operator")] = 4 << 30
    lease_ttl_sec: Annotated[float, amount("seconds before the lease of a change expires", "operator")] = 30.0
    spool_max_bytes: Annotated[int, amount("maximum output of a command that a handle keeps, in bytes")] = 64 << 20
    code_max_calls: Annotated[int, amount("maximum number of tool calls of one execute_code")] = 1_000
    code_result_bytes: Annotated[int, amount("maximum size of a tool's result inside execute_code, in bytes")] = 4 << 20
    edit_max_bytes: Annotated[int, amount("largest file that is edited or patched, in bytes")] = 2 << 20
    lease_wait_sec: Annotated[float, amount("seconds that a change waits for another change of the same file")] = 5.0
    workers: Annotated[int, amount("maximum number of calls that run concurrently, quick and long ones each")] = 8
    helper_idle_sec: Annotated[float, amount("seconds before an unused helper process is ended")] = 60.0
    max_queued_calls: Annotated[int, amount("maximum number of running and queued calls")] = 1_000
    max_tasks: Annotated[int, amount("maximum number of MCP tasks that a session has at a time")] = 32
    task_ttl_sec: Annotated[float, amount("longest time that an MCP task is kept, in seconds")] = 3_600.0
    rate_limit_rps: Annotated[float, amount("HTTP calls per second and token")] = 10.0
    rate_limit_burst: Annotated[int, amount("HTTP calls that a token may make in one burst")] = 20
    concurrency_per_token: Annotated[int, amount("maximum number of concurrent HTTP calls per token")] = 8


class Observability(Section):
    """[mcp.observability]"""

    enabled: Annotated[bool, key("log to stderr, and record statistics and audits of calls", "on")] = True
    log_format: Annotated[str, one_of("format of a log line", "free", "json", "text")] = "json"
    log_level: Annotated[str, one_of("minimum log level", "free", "debug", "info", "warning", "error")] = "info"
    include_correlation_id: Annotated[bool, key("include correlation ids in the log", "on")] = True
    metrics_enabled: Annotated[bool, key("collect metrics", "free")] = True
    metrics_prometheus_enabled: Annotated[bool, key("serve metrics over HTTP", "off")] = True
    metrics_path: Annotated[str, key("path at which metrics are served", "operator")] = "/metrics"
    csv_token_audit_enabled: Annotated[bool, key("write a row per call to csv_path", "operator")] = False
    csv_path: Annotated[
        str, key("file for the token audit; a relative path starts at the data directory", "operator")
    ] = "./artifacts/token_audit.csv"
    audit_enabled: Annotated[bool, key("record every call that may change something in the audit log", "on")] = True
    retention_days: Annotated[int, key("days that records are kept; 0: forever", "operator", ge=0)] = 90
    otel_enabled: Annotated[bool, key("send an OpenTelemetry span per call, if the extra is installed", "off")] = True


class SessionDefaults(Section):
    """[mcp.session]"""

    default_agent_id: Annotated[str, key("agent name of a client that gives none", "operator")] = "unknown"
    default_model: Annotated[str, key("model name of a client that gives none", "operator")] = "unknown"
    default_budget_profile: Annotated[str, key("budget profile of a client that gives none", "operator")] = "unknown"


class Te(Section):
    """[mcp.te]"""

    enabled: Annotated[bool, key("condense the output of te and te_run; false: leave it as it is", "off")] = True
    script_path: Annotated[str, key("no effect: te is part of this package", "operator")] = ""
    json_mode: Annotated[bool, key("te_run returns JSON; false: the text that te prints", "free")] = True
    timeout: Annotated[float, amount("time limit of te_run, in seconds")] = 30.0
    passthrough_on_failure: Annotated[
        bool, key("pass output that cannot be condensed through unchanged; false: report an error", "off")
    ] = True
    budgets: Annotated[
        dict[str, int], key("tokens a session may read, by budget profile or agent, as name = tokens", "operator")
    ] = msgspec.field(default_factory=dict[str, int])
    default_budget: Annotated[int, amount("tokens a session may read if budgets does not name its agent")] = 50_000
    reply_tokens: Annotated[int, amount("maximum number of tokens that te shows of one command")] = 2_500
    hard_budget: Annotated[bool, key("show a session only counts once its budget is used up", "on")] = False
    unchanged_tokens: Annotated[
        int, key("leave output of fewer tokens than this as it is; 0: condense all output", "smaller", ge=0, le=1 << 53)
    ] = 400


class ResourcesSection(Section):
    """[mcp.resources]"""

    sidecars: Annotated[Names, key("documents offered as MCP resources", "fewer")] = (
        "DOCS/agents.core.min.md",
        "DOCS/contracts.env.min.md",
    )


class StoreSettings(Section):
    """[mcp.store]"""

    url: Annotated[
        str, key("sqlite: in the data directory; or the address of a PostgreSQL database", "operator", secret=True)
    ] = "sqlite"
    workspaces: Annotated[
        dict[str, str], key("in PostgreSQL, the name of a folder that servers share: folder = name", "operator")
    ] = msgspec.field(default_factory=dict[str, str])

    def is_shared(self) -> bool:
        """Whether servers with other data directories use it, too."""
        return self.url != "sqlite"


class Docker(Section):
    """[mcp.docker]"""

    data_volume: Annotated[str, key("no effect: LLMC_DATA_DIR names the folder", "operator")] = ""
    persist_telemetry: Annotated[bool, key("keep telemetry in the data directory", "operator")] = True
    persist_token_audit: Annotated[bool, key("keep the token audit in the data directory", "operator")] = True


class Roots(Section):
    """[mcp.linux_ops.roots]"""

    allowed_roots: Annotated[Names, key("like mcp.tools.allowed_roots, and takes precedence over it", "beneath")] = ()
    enforce_roots: Annotated[bool, key("false: the root is /", "on")] = True


class Commands(Section):
    """[mcp.linux_ops.commands]"""

    allowed_binaries: Annotated[Names, key("additional binaries that commands may start", "fewer")] = ()
    unsafe_binaries: Annotated[Names, key("binaries that are refused unless allow_unsafe is true", "more")] = ()
    allow_unsafe: Annotated[bool, key("allow unsafe_binaries", "off")] = False
    allowed_env: Annotated[Names, key("environment variables that may be set for an interactive process", "fewer")] = (
        *("TERM", "LANG", "LC_ALL", "TZ", "COLUMNS", "LINES", "PS1", "NO_COLOR", "FORCE_COLOR", "CI", "DEBUG"),
        *("LOG_LEVEL", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONWARNINGS", "PYTHONASYNCIODEBUG"),
        *("DJANGO_SETTINGS_MODULE", "FLASK_APP", "NODE_ENV", "RUST_BACKTRACE", "RUST_LOG", "GOFLAGS", "PORT"),
    )


class ProcessLimits(Section):
    """[mcp.linux_ops.process_limits]"""

    max_procs_per_session: Annotated[int, amount("maximum number of interactive processes per session")] = 4
    max_procs_total: Annotated[int, amount("maximum number of interactive processes of all sessions")] = 32
    max_background_per_session: Annotated[
        int, amount("maximum number of commands of a session that run on after their call")
    ] = 24
    max_background_total: Annotated[int, amount("the same for all sessions")] = 96
    default_timeout_sec: Annotated[float, amount("time limit of tools without their own setting, in seconds")] = 60.0
    max_timeout_sec: Annotated[float, amount("longest time limit of any call, in seconds")] = 600.0
    idle_reap_sec: Annotated[float, amount("seconds before an idle process is ended")] = 1_800.0
    allow_kill_other_users: Annotated[bool, key("list and signal processes of other users", "off")] = False
    list_all_users: Annotated[bool, key("list processes of other users", "off")] = False


class Features(Section):
    """[mcp.linux_ops.features]"""

    fs_enabled: Annotated[bool, key("file and search tools", "off")] = True
    proc_enabled: Annotated[bool, key("command and process tools", "off")] = True
    kill_enabled: Annotated[bool, key("signals to processes (linux_proc_kill)", "off")] = True
    repl_enabled: Annotated[bool, key("interactive processes", "off")] = True
    system_enabled: Annotated[bool, key("system tools", "off")] = True
    logs_enabled: Annotated[bool, key("system log tool", "off")] = False


class LinuxOps(Section):
    """[mcp.linux_ops]"""

    roots: Roots = msgspec.field(default_factory=Roots)
    commands: Commands = msgspec.field(default_factory=Commands)
    process_limits: ProcessLimits = msgspec.field(default_factory=ProcessLimits)
    features: Features = msgspec.field(default_factory=Features)


class Config(Section):
    """[mcp]"""

    enabled: Annotated[bool, key("false: the server refuses to start", "off")] = True
    config_version: Annotated[str, one_of("version of the configuration format", "free", "v0")] = "v0"
    mode: Annotated[
        str,
        one_of(
            "which tools are listed: all, a small set, or the fewest", "operator", "classic", "hybrid", "code_execution"
        ),
    ] = "hybrid"
    server: Server = msgspec.field(default_factory=Server)
    auth: Auth = msgspec.field(default_factory=Auth)
    oauth: OAuth = msgspec.field(default_factory=OAuth)
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
        """Whether replies are lean text (a line of metadata, then the raw body) rather than JSON."""
        if self.server.result_format == "auto":
            return self.mode != "classic"
        return self.server.result_format == "lean"

    def configured_roots(self) -> tuple[Names, str]:
        """The roots as configured, possibly none, and the key that they come from."""
        roots = self.linux_ops.roots
        if not roots.enforce_roots:
            return ("/",), "linux_ops.roots.enforce_roots"
        if roots.allowed_roots:
            return roots.allowed_roots, "linux_ops.roots.allowed_roots"
        return self.tools.allowed_roots, "tools.allowed_roots"

    def network(self) -> str:
        """What network commands have: off, allowlist or on."""
        chosen = self.tools.network
        if chosen != "auto":
            return chosen
        if self.tools.allow_outbound_network:
            return "on"
        opened = [rule for rule in self._host_rules() if rule.do == "allow" and not isinstance(rule, WorkspaceRule)]
        return "allowlist" if self.tools.network_allow or opened else "off"

    def _host_rules(self) -> list[PolicyRule]:
        return [rule for rule in self.policy.rules if rule.host]

    def egress_entries(self) -> Names:
        """What the proxy obeys: the rules about hosts, those of the workspace first, then the allowlist.

        A rule of the workspace only denies; what asks is denied until a person has said yes.
        """
        rules = sorted(self._host_rules(), key=lambda rule: not isinstance(rule, WorkspaceRule))
        signed = (f"{'+' if rule.do == 'allow' else '!'}{rule.host}" for rule in rules)
        return (*signed, *self.tools.network_allow)

    def allowed_binaries(self) -> frozenset[str]:
        """Every binary that a command may start."""
        commands = self.linux_ops.commands
        allowed = frozenset(self.tools.run_cmd_allowlist) | frozenset(commands.allowed_binaries)
        return allowed if commands.allow_unsafe else allowed - frozenset(commands.unsafe_binaries)

    def capped_seconds(self, seconds: float) -> float:
        """A time limit, capped at max_timeout_sec."""
        return min(seconds, self.linux_ops.process_limits.max_timeout_sec)


# --- accepted, not in force in this version ------------------------------------------------------------------------
# Sections and keys that have no effect, and why. Remove an entry when code starts to read the key.
NOT_IN_FORCE = {
    "te.script_path": "te is part of this package; remove the key",
    "docker.data_volume": "the environment variable LLMC_DATA_DIR names the data directory; remove the key",
    "docker": "all state is stored in the data directory, which is the volume to mount",
}


# --- the tree as a list of keys ------------------------------------------------------------------------------------


class SettingKey(NamedTuple):
    """One setting: its dotted name below [mcp], and its declaration."""

    name: str
    type: Any
    default: Any
    doc: str
    rule: Rule
    secret: bool
    choices: Names

    @property
    def bare_type(self) -> Any:
        """The type without its metadata."""
        return get_args(self.type)[0] if get_origin(self.type) is Annotated else self.type

    @property
    def not_in_force(self) -> str:
        """Why the setting has no effect; empty if it has one."""
        return NOT_IN_FORCE.get(self.name) or NOT_IN_FORCE.get(self.name.partition(".")[0], "")

    def visible(self, value: object) -> object:
        """A value with a possible password masked."""
        if not self.secret or "@" not in str(value):
            return value
        before, _, after = str(value).rpartition("@")
        return f"{before.partition('://')[0]}://***@{after}"

    def shown(self, value: object) -> str:
        """A value for display, in TOML syntax, without secrets."""
        try:
            return msgspec.json.encode(self.visible(value)).decode()
        except OverflowError:  # an integer too large to encode
            return str(value)


@cache
def sections() -> Mapping[str, Section]:
    """The sections by name, each with its defaults; the name of the top level is empty."""
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
    """A setting by its dotted name. Evaluates the annotations of one section only."""
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
        declared.get("rule", "operator"),  # without a rule, only the operator may set it
        declared.get("secret", False),
        declared.get("choices", ()),
    )


@cache
def keys() -> Mapping[str, SettingKey]:
    """Every setting by name."""
    names = (f"{at}.{field}".lstrip(".") for at, section in sections().items() for field in section.__struct_fields__)
    return {name: setting for name in names if (setting := find_key(name)) is not None}


def get_key(config: Config, name: str) -> Any:
    """The value of a setting by its dotted name."""
    value: object = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def put_key(config: Config, name: str, value: object) -> None:
    """Set a setting by its dotted name; the value must already have the right type."""
    section, _, field = name.rpartition(".")
    setattr(get_key(config, section) if section else config, field, value)
