"""Finding the few lines of a flood that may matter: its words are searched for, its lines are not visited."""

_MOST = 4_000  # lines with one word; a word that is more common than that tells nothing


class WordSearch:
    """Searches blocks of lines for words; counts a word that turns out to be common, and looks no more at its lines."""

    def __init__(self, words: tuple[bytes, ...], *, any_case: bool) -> None:
        self._any_case = any_case
        self._lines = dict.fromkeys(words, 0)
        self._more: dict[bytes, int] = {}

    def find(self, block: bytes) -> list[int]:
        """The lines of a block, by their index, that have a word."""
        text = block.lower() if self._any_case else block
        places: list[int] = []
        for word in self._lines:
            if word in self._more:
                self._more[word] += text.count(word)
            else:
                self._search(text, word, places)
        return _line_indexes(text, sorted(places))

    def _search(self, text: bytes, word: bytes, places: list[int]) -> None:
        """Add the place of the first occurrence in each line."""
        at = text.find(word)
        while at >= 0:
            places.append(at)
            self._lines[word] += 1
            end = text.find(b"\n", at)
            if self._lines[word] >= _MOST:
                self._more[word] = text.count(word, end) if end >= 0 else 0
                return
            at = text.find(word, end) if end >= 0 else -1

    def notes(self) -> tuple[str, ...]:
        """What the counts don't include, if anything."""
        common = {word: count for word, count in self._more.items() if count}
        if not common:
            return ()
        listed = ", ".join(f"{word.decode().strip()!r} {count:,} times" for word, count in common.items())
        return (f"too many to look at each: {listed} after the first {_MOST:,} lines with it; not in the counts above",)


def _line_indexes(text: bytes, places: list[int]) -> list[int]:
    indexes: dict[int, None] = {}
    line = before = 0
    for place in places:
        line += text.count(b"\n", before, place)
        before = place
        indexes[line] = None
    return list(indexes)
