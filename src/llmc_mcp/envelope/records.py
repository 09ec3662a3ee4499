"""One row in the store for every command run through `te`. Recording must never fail or delay the command.

Neither output nor arguments beyond a subcommand are stored: they may contain anything. A row that can't be written
quickly (full disk, contention) is dropped. Every `te` imports this, so it stays light.
"""

import os
import sqlite3
import time

from ..errors import LlmcError
from ..store.data_dir import data_directory, database_of
from ..store.root_sets import RootSet
from ..store.schema import STEPS, insert_into

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing.TYPE_CHECKING without the import: `te` runs commands without loading typing
    from collections.abc import Callable

    from ..store.base import Connection

_WAIT_S = 3.0
_LONGEST_NAME = 200
_BYTES_PER_TOKEN = 4  # estimate for output that is not parsed
# Programs with subcommands, which are part of the command's name.
_MANY_IN_ONE = frozenset({"git", "npm", "yarn", "pnpm", "cargo", "go", "docker", "kubectl", "pip", "uv", "make", "gh"})

USED = "SELECT coalesce(sum(tokens_out),0) FROM calls WHERE source IN ('te', 'te_run') AND agent_id=? AND session_id=?"


class Identity:
    """Who runs the command, according to its environment; never guessed."""

    def __init__(self, agent_id: str, session_id: str, model: str, principal: str = "") -> None:
        self.agent_id, self.session_id, self.model = agent_id or "unknown", session_id, model or "unknown"
        self.principal = principal or f"uid:{os.getuid()}"


def identity() -> Identity:
    """The identity that the environment declares."""
    given = (os.environ.get(name, "") for name in ("TE_AGENT_ID", "TE_SESSION_ID", "TE_MODEL"))
    return Identity(*(value[:_LONGEST_NAME].encode("utf-8", "replace").decode() for value in given))


class CommandRecord:
    """The measurements of one command, for its row."""

    def __init__(self, argv: list[str], who: Identity, roots: RootSet, source: str = "te") -> None:
        self.name, self.words, self.who, self.source = name_of(argv), len(argv) - 1, who, source
        self.roots = roots
        self.mode = "passthrough"
        self.bytes_out = self.tokens_out = self.tokens_saved = 0
        self._started, self._began = time.time(), time.perf_counter()

    @property
    def latency_ms(self) -> float:
        """Time since the start."""
        return (time.perf_counter() - self._began) * 1000

    def printed(self, count: int) -> None:
        """Record output that was passed through."""
        self.bytes_out, self.tokens_out = count, count // _BYTES_PER_TOKEN

    def shown(self, body: bytes, raw_tokens: int) -> None:
        """Record a condensed body, and the tokens that the whole output would have cost."""
        from ..tokens import estimate

        self.bytes_out, self.tokens_out = len(body), estimate(body)
        self.tokens_saved = max(raw_tokens - self.tokens_out, 0)

    def row(self, code: int) -> dict[str, object]:
        """The row in `calls`, by column, for a command that has ended."""
        return {
            "at": self._started,
            "source": self.source,
            "tool": f"te {self.name}",
            "status": "ok" if code == 0 else f"exit {code}" if code > 0 else f"signal {-code}",
            "duration_ms": self.latency_ms,
            "args": f"{self.words} words",
            "bytes_in": 0,
            "bytes_out": self.bytes_out,
            "principal": self.who.principal,
            "session_id": self.who.session_id,
            "agent_id": self.who.agent_id,
            "model": self.who.model,
            "tokens_out": self.tokens_out,
            "tokens_saved": self.tokens_saved,
            "mode": self.mode,
            "roots": self.roots.key,
        }

    def insert(self, connection: "Connection", code: int, stored_key: "Callable[[str], str]" = str) -> None:
        """Write the row; `stored_key` has the form of a root set that the store's rows carry."""
        row = self.row(code)
        row["roots"] = stored_key(self.roots.key)
        connection.execute(insert_into("calls", tuple(row)), tuple(row.values()))

    def record(self, code: int, data_dir: str | None = None) -> bool:
        """Write the row to the store; False when that fails."""
        try:
            self.insert(connect(data_dir or data_directory()), code)
        except (sqlite3.Error, OSError, LlmcError):
            return False
        return True


def name_of(argv: list[str]) -> str:
    """The name of a command in statistics: the program, with its subcommand if it has one."""
    program = os.path.basename(argv[0])[:40].encode("utf-8", "replace").decode()
    if program in _MANY_IN_ONE:
        word = next((word for word in argv[1:] if not word.startswith("-")), "")
        if word.replace("-", "").isalpha() and len(word) <= 20:
            return f"{program} {word}"
    return program


def connect(data_dir: str) -> sqlite3.Connection:
    """A connection to the store, which is created or migrated first if necessary.

    It is never closed: the process ends soon, and closing would checkpoint the WAL.
    """
    path = database_of(data_dir)
    if not os.path.exists(path):
        _create_or_migrate(data_dir)
    connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
    if connection.execute("PRAGMA user_version").fetchone()[0] < len(STEPS):
        _create_or_migrate(data_dir)
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _create_or_migrate(data_dir: str) -> None:
    from ..store.sqlite import SqliteStore

    SqliteStore(data_dir)


def tokens_used(who: Identity, data_dir: str | None = None) -> int:
    """Tokens that the session has used so far; 0 for a session without a name."""
    if not who.session_id:
        return 0
    try:
        return connect(data_dir or data_directory()).execute(USED, (who.agent_id, who.session_id)).fetchone()[0]
    except (sqlite3.Error, OSError, LlmcError):
        return 0
