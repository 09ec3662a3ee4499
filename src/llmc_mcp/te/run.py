"""`te` in front of a command whose output it understands, and `te --json` in front of any.

The command starts first; what is needed to make sense of its output is imported while it runs.
"""

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from ..envelope.families import CondensedOutput, Envelope, budget_of, recognise
from ..envelope.family import Budget, FamilyPlan
from ..envelope.names import interest_of
from ..envelope.records import CommandRecord, identity, tokens_used
from . import child, recent
from .folder import root_set

if TYPE_CHECKING:
    from ..config.schema import Config
    from ..files.handles import Sink

_OUT, _ERR = "stdout", "stderr"
_STDERR_KEPT = 16_000
_PAUSE_MS = 1_000


def run(command: list[str], *, as_json: bool, raw: bool, line: str = "") -> None:
    """Run a command and print its condensed output; returns where the command should pass through instead.

    `line` is what bash runs, where the command is that.
    """
    plan = _recognised(command, line)
    if plan is not None and plan.kind == "scripts" and os.isatty(1):
        plan = None  # a script on a terminal may draw on it, or ask
    config = _config() if _is_configured() else None
    off = raw or (config is not None and not config.te.enabled)
    if as_json:
        from ..envelope.text import Ends

        chosen = plan if plan is not None and not off else FamilyPlan(command, Ends(), any_bytes=True)
        _Run(command, chosen, config).answer_json("raw" if raw else "enriched" if chosen is plan else "passthrough")
    if plan is not None and not off:
        _Run(command, plan, config).print_text()


def _recognised(command: list[str], line: str) -> FamilyPlan | None:
    """The plan, with what the session is after."""
    before = recent.lines()
    recent.remember(line or " ".join(command))
    if line:
        from ..envelope.recognition import recognise_line

        plan = recognise_line(line, before)
        return plan._replace(argv=command) if plan is not None else None
    plan = recognise(command)
    if plan is None:
        return None
    return plan._replace(interest=interest_of([" ".join(command), *reversed(before)]))


class _Run:
    """One run of a command."""

    def __init__(self, command: list[str], plan: FamilyPlan, config: "Config | None") -> None:
        self._command, self._plan = command, plan
        self._noted = CommandRecord(list(plan.named) or command, identity(), root_set())
        self._stderr = b""
        self._config = config

    def _start(self, *, with_stderr: bool) -> None:
        out, out_end = child.pipe()
        one_stream = self._plan.one_stream and not with_stderr and _same_file(1, 2)
        err, err_end = child.pipe() if with_stderr else (-1, out_end if one_stream else 2)
        try:
            self._child = self._spawn(out_end, err_end)
        except child.NotStarted as exc:
            self._noted.record(exc.code)
            os.write(2, f"{exc}\n".encode("utf-8", "surrogateescape"))
            os._exit(exc.code)
        for fd in {out_end, err_end} - {2}:
            os.close(fd)
        self._sources = {out: _OUT, err: _ERR} if with_stderr else {out: _OUT}
        self._out = out
        self._ended = os.pidfd_open(self._child.pid)
        self._config = self._config or _config()
        unchanged = self._config.te.unchanged_tokens
        self._envelope = Envelope(self._plan, self._open_sink, unchanged_tokens=unchanged)

    def _spawn(self, out: int, err: int) -> child.WrappedCommand:
        try:
            return child.WrappedCommand(self._plan.argv, stdout=out, stderr=err)
        except child.NotStarted as exc:
            if self._plan.argv[0] != "rg" or exc.code != child.NOT_FOUND:
                raise
            bundled = _bundled_ripgrep()
            if not bundled:
                raise
            return child.WrappedCommand([bundled, *self._plan.argv[1:]], stdout=out, stderr=err)

    def _budget(self) -> tuple[Budget, int]:
        who, te = self._noted.who, _of(self._config).te
        whole = te.budgets.get(who.agent_id, te.default_budget)
        return budget_of(te, whole, tokens_used(who))

    def _open_sink(self) -> "Sink":
        from ..files.handles import HandleRetention, Handles, SafeSink
        from ..store.data_dir import data_directory
        from ..store.sqlite import SqliteStore

        limits = _of(self._config).limits
        policy = HandleRetention(limits.handles_max_total_bytes, limits.spool_max_bytes, limits.handle_ttl_hours * 3600)

        def spool() -> "Sink":
            handles = Handles(SqliteStore(data_directory()), policy, self._noted.roots)
            return handles.spool(self._noted.who.principal, "command_output", {"command": self._noted.name})

        return SafeSink(spool, lambda _reason: None)

    # --- text -------------------------------------------------------------------------------------

    def print_text(self) -> NoReturn:
        self._start(with_stderr=False)
        for stream, piece in child.pieces(self._sources, self._ended, self._patience_ms()):
            if not stream and self._envelope.held:
                self._go_through()
            self._envelope.feed(piece)
            if self._envelope.binary and self._envelope.held is not None and not self._budget()[0].used_up:
                self._go_through()
        code = self._child.wait()
        budget, _ = self._budget()
        done = self._envelope.finish(budget)
        if done is None and budget.used_up:
            done = self._envelope.as_it_is(budget)
        if done is None:
            self._give_up(code)
        from ..envelope.reply import as_text

        if hint := self._plan.hint(os.path.isdir):
            os.write(2, f"te: {hint}\n".encode("utf-8", "surrogateescape"))
        self._note(code, "enriched" if done.unchanged is None else "unchanged", done)
        self._end(code, as_text(self._noted.name, done))

    def _patience_ms(self) -> int | None:
        """How long a script may pause before it counts as one that somebody watches or talks to."""
        return _PAUSE_MS if self._plan.kind == "scripts" and not self._plan.named else None

    def _go_through(self) -> NoReturn:
        """The output is not text, or is waited for: print what was read and pass the rest through."""
        held = self._envelope.held or b""
        try:
            child.write(1, held)
        except BrokenPipeError:
            os.close(self._out)
            child.end_like(self._child.wait())
        moved, _ = child.pump(self._out, 1, self._ended)
        code = self._child.wait()
        self._noted.printed(len(held) + moved)
        self._noted.record(code)
        child.end_like(code)

    def _give_up(self, code: int) -> NoReturn:
        """Condensing failed: a bug of ours, or binary data far into the output."""
        wanted = self._envelope.binary or _of(self._config).te.passthrough_on_failure
        if self._envelope.failure is not None:
            self._noted.mode = "fallback"
        if not wanted:
            handle = self._envelope.keep()
            self._noted.record(code)
            why = f"te: {self._noted.name}: the output could not be enriched ({self._envelope.failure!r})"
            os.write(2, f"{why}; it is kept: te --handle {handle}\n".encode("utf-8", "replace"))
            child.end_like(code)
        held = self._envelope.held
        if held is None:
            held = self._stored(self._envelope.keep())
        self._noted.printed(len(held))
        self._noted.record(code)
        self._end(code, held)

    def _stored(self, handle: str | None) -> bytes:
        if handle is None:
            return b"# TE: the output could be neither enriched nor kept; te --raw prints it\n"
        from .queries import open_handles

        handles, principal = open_handles()
        found = handles.find(principal, handle)
        return handles.read(found, 0, found.size).data

    def _note(self, code: int, mode: str, done: CondensedOutput) -> None:
        self._noted.mode = mode
        self._noted.shown(done.body(), done.raw_tokens)
        self._noted.record(code)

    def _end(self, code: int, text: bytes) -> NoReturn:
        try:
            child.write(1, text)
        except BrokenPipeError:
            pass  # the reader is gone
        except OSError as exc:
            os.write(2, f"te: {exc.strerror}\n".encode())
        child.print_later(self._out)
        child.end_like(code)

    # --- JSON -------------------------------------------------------------------------------------

    def answer_json(self, mode: str) -> NoReturn:
        self._start(with_stderr=True)
        for stream, piece in child.pieces(self._sources, self._ended):
            if stream == _OUT:
                self._envelope.feed(piece)
            else:
                self._stderr = (self._stderr + piece)[-_STDERR_KEPT:]
        code = self._child.wait()
        budget, left = self._budget()
        done = self._envelope.finish(budget)
        failed = done is None and self._envelope.failure is not None
        if done is None:
            mode, done = "passthrough", self._envelope.as_it_is(budget)
        recorded = "fallback" if failed else mode
        if mode == "enriched" and done.unchanged is not None:
            mode, recorded = "passthrough", "unchanged"
        self._note(code, recorded, done)
        import msgspec

        self._end(code, msgspec.json.encode(self._answer(mode, code, done, left)) + b"\n")

    def _answer(self, mode: str, code: int, done: CondensedOutput, left: int) -> object:
        import shlex

        from ..envelope.reply import Cost, TeOutput, enrichment_of, stderr_text

        noted, body = self._noted, done.body()
        return TeOutput(
            code == 0,
            mode,
            shlex.join(self._command).encode("utf-8", "replace").decode(),
            body.decode("utf-8", "replace"),
            stderr_text(self._stderr),
            code if code >= 0 else 128 - code,
            enrichment_of(done, self._plan.hint(os.path.isdir)),
            Cost(round(noted.latency_ms, 1), noted.who.agent_id, max(left - noted.tokens_out, 0)),
        )


def _same_file(one: int, other: int) -> bool:
    """Whether two descriptors write to the same place, in the order of the writes."""
    first, second = os.fstat(one), os.fstat(other)
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def _bundled_ripgrep() -> str:
    from ..errors import LlmcError
    from ..files.ripgrep import find_ripgrep

    try:
        return os.fsdecode(find_ripgrep())
    except LlmcError:
        return ""


def _of(config: "Config | None") -> "Config":
    if config is None:
        raise ValueError("the configuration is loaded once the command runs")
    return config


def _is_configured() -> bool:
    """Whether there may be a configuration, which is then read before the command starts."""
    environ = os.environ
    home = environ.get("XDG_CONFIG_HOME", "")
    home = home if os.path.isabs(home) else os.path.join(os.path.expanduser("~"), ".config")
    return (
        "LLMC_CONFIG" in environ
        or any(name.startswith("LLMC_MCP_") for name in environ)
        or os.path.exists("llmc.toml")
        or os.path.exists(os.path.join(home, "llmc", "llmc.toml"))
    )


def _config() -> "Config":
    """The configuration in force, or the defaults where it has mistakes, which the server reports."""
    from ..config.schema import Config
    from ..errors import LlmcError

    if not _is_configured():
        return Config()
    from ..config.load import load

    try:
        return load().config
    except LlmcError as exc:
        print(f"te: the configuration is ignored: {exc.message.splitlines()[0]}", file=sys.stderr)
        return Config()
