"""Revisions: six characters of a file's hash, which a caller passes back with line numbers.

The contents that were shown last are remembered for a while. When a file has changed since, they tell where the lines
went that the caller means.
"""

import hashlib
import threading
from collections import OrderedDict

LENGTH = 6
_MOST_BYTES = 4 << 20


def revision_of(data: bytes) -> str:
    """The revision of a file with this content."""
    return hashlib.sha256(data).hexdigest()[:LENGTH]


class Revisions:
    """The contents that were shown last, by revision; a bounded number of bytes."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def remember(self, data: bytes) -> str:
        """The revision of this content, which can be found again for a while."""
        revision = revision_of(data)
        with self._lock:
            if revision not in self._contents and len(data) <= self._most_bytes // 4:
                self._contents[revision] = data
                self._bytes += len(data)
            if revision in self._contents:
                self._contents.move_to_end(revision)
            while self._bytes > self._most_bytes:
                self._bytes -= len(self._contents.popitem(last=False)[1])
        return revision

    def find(self, revision: str) -> bytes | None:
        """The content of a revision, if it is still remembered."""
        with self._lock:
            return self._contents.get(revision)

    def forget(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._contents.clear()
            self._bytes = 0
