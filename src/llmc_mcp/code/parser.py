"""The server's end of the process that reads code for edits."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ..errors import FeatureUnavailable
from ..rag.build.parser_process import ParserProcess
from ..rag.parse.patterns import RewriteQuery, Rewritten

if TYPE_CHECKING:
    from ..kernel.launcher import Launcher
    from ..rag.parse.name_types import NamePlaces, NameQuery, Outline

_LONGEST_S = 10.0  # for one file
_POLL_S = 0.1

Answer = TypeVar("Answer")


class CodeParser:
    """Reads code in a confined process; safe from any thread."""

    def __init__(self, launcher: "Launcher", data_dir: str) -> None:
        self._process = ParserProcess(launcher, "llmc_mcp.rag.build.code_child", data_dir)
        self._free = threading.Lock()

    def names(self, query: "NameQuery", check: Callable[[], None]) -> "NamePlaces":
        """Where a file writes a name."""
        from ..rag.parse.name_types import NamePlaces

        return self._ask(query.language, query, NamePlaces, check)

    def outline(self, language: str, text: bytes, check: Callable[[], None]) -> "Outline":
        """What a text defines."""
        from ..rag.parse.name_types import Outline, OutlineQuery

        return self._ask(language, OutlineQuery(language, text), Outline, check)

    def rewrite(self, query: RewriteQuery, check: Callable[[], None]) -> Rewritten:
        """A text with every match of a pattern replaced."""
        return self._ask(query.language, query, Rewritten, check)

    def _ask(self, language: str, query: msgspec.Struct, kind: type[Answer], check: Callable[[], None]) -> Answer:
        while not self._free.acquire(timeout=_POLL_S):
            check()
        try:
            frame = self._process.ask(language, msgspec.msgpack.encode(query), _LONGEST_S)
        except OSError as exc:
            raise FeatureUnavailable(f"the process that reads code can't be started: {exc.strerror}") from None
        finally:
            self._free.release()
        if frame is None:
            raise FeatureUnavailable("reading the code took too long, or the process that does it ended")
        return msgspec.msgpack.decode(frame, type=kind)

    def release_idle(self, idle_s: float) -> bool:
        """End the process if it was not needed for a while; whether it was ended."""
        if not self._free.acquire(blocking=False):
            return False
        try:
            return self._process.release_idle(idle_s)
        finally:
            self._free.release()

    def close(self) -> None:
        """End the process."""
        until = time.monotonic() + 1.0
        if self._free.acquire(timeout=max(0.0, until - time.monotonic())):
            self._process.close()
            self._free.release()
