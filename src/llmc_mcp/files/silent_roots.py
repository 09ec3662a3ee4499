"""Which roots do not answer: a mount whose server is gone keeps whoever looks at it waiting for ever.

Where there are several roots, a command in one need not wait for another. So a thread looks at them first; one that is
kept waiting there is left behind, and the root counts as silent until that thread comes back.
"""

import os
import threading
from collections.abc import Sequence

_ANSWER_S = 2.0


class SilentRoots:
    """The silent ones of some roots, by their real paths."""

    def __init__(self, roots: Sequence[bytes]) -> None:
        self._roots = roots
        self._lock = threading.Lock()
        self._stuck: dict[bytes, threading.Thread] = {}

    def find(self) -> frozenset[bytes]:
        """Look at every root, for a moment at most; of a single root it is never said that it is silent."""
        if len(self._roots) < 2:
            return frozenset()
        with self._lock:
            self._look()
            return frozenset(self._stuck)

    def _look(self) -> None:
        self._stuck = {root: thread for root, thread in self._stuck.items() if thread.is_alive()}
        left = [root for root in self._roots if root not in self._stuck]
        while left:
            answered: list[bytes] = []
            thread = threading.Thread(target=_look_at, args=(left, answered), name="roots", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread to be had: what needs one will say so
                return
            thread.join(_ANSWER_S)
            left = left[len(answered) :]
            if left:
                self._stuck[left.pop(0)] = thread


def _look_at(roots: Sequence[bytes], answered: list[bytes]) -> None:
    for root in roots:
        try:
            os.stat(root)
        except OSError:
            pass  # an answer, too
        answered.append(root)
