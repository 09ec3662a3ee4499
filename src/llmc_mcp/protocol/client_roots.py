"""The folders that a client has open (MCP roots): what is served of them, within what the operator allows.

A client can narrow the roots, never widen them. A server that was started where no folder is opened by default, as in a
home directory, serves what its client has open below that.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from ..context import LIST_ROOTS, Ask, UserQuestion
from ..errors import LlmcError
from ..gate.dispatch import Gate
from ..gate.log import correlation_id
from ..policy import is_below, is_broad
from ..session import Session

if TYPE_CHECKING:
    from ..app import App

_MOST_ROOTS = 32
_WAIT_S = 3.0  # that the first calls wait for a client's folders
_LOOK_S = 0.1


class ClientRoots:
    """Asks one client for its folders, when it begins and when they change, and has the gate serve them."""

    def __init__(
        self,
        gate: Gate,
        session: Session,
        ask: Ask,
        in_use: "Callable[[App], bool]",
    ) -> None:
        self._gate, self._session, self._ask, self._in_use = gate, session, ask, in_use
        self._bounds = gate.root_bounds
        self._one_at_a_time = threading.Lock()
        self._known = threading.Event()
        self._begun = False

    def begin(self) -> None:
        """Ask, unless that was done already."""
        if not self._begun:
            self.ask_again()

    def ask_again(self) -> None:
        """Ask in a thread of its own: the reader must go on to hear the answer."""
        self._begun = True
        try:
            threading.Thread(target=self._follow, name="client-roots", daemon=True).start()
        except RuntimeError:  # no thread to be had: the operator's roots stay
            self._known.set()

    def wait(self) -> None:
        """Return once the folders are known, or the client takes too long to name them."""
        self.begin()
        if not self._known.wait(_WAIT_S):
            self._known.set()

    def _follow(self) -> None:
        with self._one_at_a_time:
            try:
                ctx = self._gate.context(self._session, correlation_id())
                (answer,) = self._ask(ctx, [UserQuestion("client-roots", method=LIST_ROOTS)])
                folders = served_folders(answer.content if answer is not None else {}, self._bounds)
                self._serve(folders)
            except LlmcError as exc:
                self._gate.log.warning("roots", reason=exc.message)
            finally:
                self._known.set()

    def _serve(self, folders: list[str]) -> None:
        now = [os.fsdecode(root.real) for root in self._gate.app.files.roots]
        if not folders or (folders == now and not self._gate.without_roots):
            return
        former = self._gate.use_roots(folders)
        self._gate.log.info("roots", served=folders, by="client")
        self._known.set()
        while self._in_use(former):
            time.sleep(_LOOK_S)
        former.close()


def served_folders(answer: Mapping[str, object], bounds: Sequence[str]) -> list[str]:
    """What is served of the folders that a client names: those below the bounds, and bounds that lie in one."""
    served: dict[str, None] = {}
    for folder in _named_folders(answer.get("roots")):
        real = os.path.realpath(folder)
        for bound in map(os.path.realpath, bounds):
            if is_below(real, bound) and os.path.isdir(real) and (real == bound or not is_broad(real)):
                served[real] = None
            elif is_below(bound, real) and not is_broad(bound):
                served[bound] = None
    return list(served)


def _named_folders(roots: object) -> Iterable[str]:
    if not isinstance(roots, list):
        return
    for root in cast(list[object], roots)[:_MOST_ROOTS]:
        uri: object = cast(Mapping[str, object], root).get("uri") if isinstance(root, dict) else None
        if not isinstance(uri, str):
            continue
        parts = urlsplit(uri)
        path = unquote(parts.path)
        if parts.scheme == "file" and parts.netloc in ("", "localhost") and os.path.isabs(path) and "\0" not in path:
            yield path
