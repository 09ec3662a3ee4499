"""Many small pre-images in few: each for itself costs more than it holds.

A pack is an image like any other, under a name of its own. What is in it is found by the name of the pack, the offset
and the size. A change with few files has no packs: its images are shared with other changes of the same content.
"""

import hashlib
import os

from .journal import Journal, PreImage

PACKED_FROM = 32  # files of a change
_SMALL = 64 << 10
_PACK_BYTES = 1 << 20


class ImagePacker:
    """Makes images of contents; `images` are those that are ready to be journaled."""

    def __init__(self, journal: Journal, *, packs: bool) -> None:
        self._journal, self._packs = journal, packs
        self.images: list[PreImage] = []
        self._known: dict[bytes, str] = {}
        self._name, self._parts, self._size = _new_name(), list[bytes](), 0

    def add(self, data: bytes) -> tuple[str, str]:
        """Keep content; returns its SHA-256, and where it is if it is in a pack."""
        if not self._packs or len(data) > _SMALL:
            image = self._journal.keep(data)
            self.images.append(image)
            return image.name, ""
        digest = hashlib.sha256(data)
        place = self._known.get(digest.digest())
        if place is None:
            place = self._known[digest.digest()] = f"{self._name}.{self._size}.{len(data)}"
            self._parts.append(data)
            self._size += len(data)
            if self._size >= _PACK_BYTES:
                self.flush()
        return digest.hexdigest(), place

    def flush(self) -> None:
        """Finish the pack that is being filled."""
        if self._parts:
            self.images.append(self._journal.keep(b"".join(self._parts), self._name))
            self._name, self._parts, self._size = _new_name(), [], 0


def _new_name() -> str:
    return f"pack-{os.urandom(8).hex()}"
