"""`--transport http`: serve one port until a signal arrives, then drain."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple, cast

import uvicorn
import uvloop

from ..config.schema import Limits
from ..errors import InvalidArgument, LlmcError
from ..gate.dispatch import Gate
from ..gate.log import Log
from ..protocol.methods import Methods
from . import otel
from .app import create_app
from .auth import IssuedTokens, Tokens, issue
from .guard import Guard
from .replicas import Replicas, is_replica, replica_url
from .wire import LimitedProtocol, Patience

_SWITCH_S = 0.0005  # switch interval: how long a busy thread delays the other threads and the event loop
_BACKLOG = 2_048
_AFTER_DRAIN_S = 1  # for the connections; calls have been waited for
_LEAVE_S = 3.0


class ListeningServer(NamedTuple):
    """A server that accepts connections."""

    url: str
    issued: IssuedTokens


class _Uvicorn(uvicorn.Server):
    """uvicorn with our own signal handling: after a signal the server exits with status 0."""

    def __init__(self, config: uvicorn.Config, reload: Callable[[], None], limits: Limits) -> None:
        super().__init__(config)
        self._limits = limits
        self._reload, self._on_terminal = reload, _has_terminal()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup, and stays so
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _hang_up(self) -> None:
        """Reload what may change, as daemons do; but end if the terminal is gone that the server was started on."""
        if self._on_terminal and not _has_terminal():
            self._stop()
        else:
            threading.Thread(target=self._reload, name="reload", daemon=True).start()

    def _stop(self) -> None:
        """Drain on the first signal, stop at once on the second."""
        guard = cast(Guard, self.config.app)
        if guard.drain.has_begun:
            self.force_exit = self.should_exit = True
            return
        guard.drain.has_begun = True
        guard.end_streams()
        self._draining = asyncio.ensure_future(self._drain(guard))

    async def _drain(self, guard: Guard) -> None:
        await guard.drain.run(self._limits.drain_notice, self._limits.drain_timeout)
        self.should_exit = True


class _Forward(logging.Handler):
    """Forwards the log records of libraries to our log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._log.exception("library", logger=record.name, message=record.getMessage()[:500])
        else:
            self._log.warning("library", logger=record.name, message=record.getMessage()[:500])


def serve(gate: Gate, ready: Callable[[ListeningServer], None], methods: Methods | None = None) -> None:
    """Serve until SIGTERM or SIGINT; running calls get a grace period. SIGHUP reloads limits, policy and tokens."""
    config = gate.app.config
    issued = issue(
        config.auth,
        config.server.host,
        gate.app.data_dir,
        os.environ,
        has_issuer=bool(config.oauth.issuer),
        store=gate.app.store,
    )
    issued.tokens.follow()
    for notice in issued.notices:
        gate.log.warning("auth", notice=notice)
    _forward_logs(gate.log)
    stop_tracing = _trace(gate)
    _raise_file_limit()
    sys.setswitchinterval(_SWITCH_S)
    with _bound(config.server.host, config.server.port) as listener, _joined(gate, listener) as replicas:
        app = create_app(gate, issued.tokens, methods, replicas)
        server = _Uvicorn(_uvicorn_config(gate, app), partial(_reload, gate, issued.tokens), config.limits)
        listening = ListeningServer(_url(listener, config.server.host), issued)
        _freeze_heap()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(server, listener, partial(ready, listening)))
    issued.tokens.close()
    stop_tracing()


@contextlib.contextmanager
def _joined(gate: Gate, listener: socket.socket) -> Generator[Replicas | None]:
    """Be one of the replicas on a store that several servers may share."""
    if not is_replica(gate.app):
        yield None
        return
    gate.replicas = replicas = Replicas(gate, replica_url(gate.app.config, listener.getsockname()[1]))
    gate.log.info("replica", id=replicas.id, url=replicas.url)
    try:
        yield replicas
    finally:
        leaving = threading.Thread(target=replicas.leave, name="leave", daemon=True)
        leaving.start()
        leaving.join(_LEAVE_S)  # a database that does not answer keeps nobody from ending


async def _run(server: _Uvicorn, listener: socket.socket, ready: Callable[[], None]) -> None:
    serving = asyncio.ensure_future(server.serve([listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    if server.started:
        ready()
    await serving


def _reload(gate: Gate, tokens: Tokens) -> None:
    """Take over limits and policy from the configuration, and tokens from the store."""
    try:
        gate.log.warning("reload", changed=gate.app.reload())
        tokens.refresh()
    except LlmcError as exc:
        gate.log.warning("reload", refused=exc.message)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _uvicorn_config(gate: Gate, app: Any) -> uvicorn.Config:
    limits, tools = gate.app.config.limits, gate.app.config.tools
    patience = Patience(limits.max_header_bytes, limits.receive_timeout, tools.idle_timeout, limits.max_connections)
    return uvicorn.Config(
        app,
        http=cast(type[asyncio.Protocol], partial(LimitedProtocol, patience)),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=int(tools.idle_timeout) + 1,
        timeout_graceful_shutdown=_AFTER_DRAIN_S,
    )


def _bound(host: str, port: int) -> socket.socket:
    address = host.strip("[]")
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address, port), family=family, backlog=_BACKLOG)
    except OSError as exc:
        raise InvalidArgument(
            f"can't listen on {host}:{port}: {(exc.strerror or str(exc)).lower()}",
            hint="Choose another one with --port; 0 selects any free port.",
        ) from None


def _url(listener: socket.socket, host: str) -> str:
    name = "127.0.0.1" if host in ("0.0.0.0", "") else "[::1]" if host == "::" else host  # noqa: S104 - not bound here
    if ":" in name and not name.startswith("["):
        name = f"[{name}]"
    return f"http://{name}:{listener.getsockname()[1]}"


def _forward_logs(log: Log) -> None:
    root = logging.getLogger()
    root.handlers[:] = [_Forward(log)]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)


def _trace(gate: Gate) -> Callable[[], None]:
    """Send spans if OpenTelemetry is configured; return a function that stops it."""
    if not gate.app.config.observability.otel_enabled or not otel.wanted():
        return lambda: None
    if not otel.installed():
        gate.log.warning("otel", notice="a collector is configured, but the extra otel of llmc-mcp is not installed")
        return lambda: None
    listener, stop = otel.over_http()
    gate.listeners.append(listener)
    return stop


def _freeze_heap() -> None:
    """Exclude the objects that exist now, about 100,000, from garbage collection: they live until the server exits.

    Scanning them made all requests wait 50 ms or more each time.
    """
    gc.collect()
    gc.freeze()


def _raise_file_limit() -> None:
    """Raise the soft limit on open files: the usual one is lower than the maximum number of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 16_384 if hard == resource.RLIM_INFINITY else min(hard, 16_384)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
