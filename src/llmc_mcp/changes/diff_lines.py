"""Match the lines of two texts: patience diff first, then Myers on the ranges between its anchors."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

_MOST_CHANGES = 300  # in one range without a unique line; beyond, the whole range counts as replaced
_MOST_STEPS = 1_000_000  # of the Myers search, in all ranges together

Block = tuple[int, int, int]  # (start in a, start in b, lines)


def blocks(a: Sequence[str], b: Sequence[str]) -> list[Block]:
    """Blocks of equal lines, in order."""
    matched: list[Block] = []
    budget = [_MOST_STEPS]
    todo = [(0, len(a), 0, len(b))]
    while todo:
        a_low, a_high, b_low, b_high = todo.pop()
        head = _equal(a, b, a_low, a_high, b_low, b_high)
        if head:
            matched.append((a_low, b_low, head))
            a_low, b_low = a_low + head, b_low + head
        tail = 0
        while a_low < a_high - tail and b_low < b_high - tail and a[a_high - tail - 1] == b[b_high - tail - 1]:
            tail += 1
        a_high, b_high = a_high - tail, b_high - tail
        if tail:
            matched.append((a_high, b_high, tail))
        if a_low == a_high or b_low == b_high:
            continue
        anchors = _anchors(a, b, a_low, a_high, b_low, b_high)
        if anchors:
            todo += _between(anchors, a_low, a_high, b_low, b_high)
        else:
            pairs = _myers(a[a_low:a_high], b[b_low:b_high], budget)
            matched += [(a_low + i, b_low + j, 1) for i, j in pairs]
    return sorted(matched)


def _equal(a: Sequence[str], b: Sequence[str], a_low: int, a_high: int, b_low: int, b_high: int) -> int:
    limit = min(a_high - a_low, b_high - b_low)
    return next((i for i in range(limit) if a[a_low + i] != b[b_low + i]), limit)


def _between(
    anchors: list[tuple[int, int]], a_low: int, a_high: int, b_low: int, b_high: int
) -> Iterator[tuple[int, int, int, int]]:
    """The ranges that begin with an anchor, and the one before the first anchor."""
    for i, j in anchors:
        yield a_low, i, b_low, j
        a_low, b_low = i, j
    yield a_low, a_high, b_low, b_high


def _anchors(
    a: Sequence[str], b: Sequence[str], a_low: int, a_high: int, b_low: int, b_high: int
) -> list[tuple[int, int]]:
    """The longest sequence of lines that occur once on each side, in the same order on both."""
    once_in_a = {line for line, times in Counter(a[a_low:a_high]).items() if times == 1}
    once_in_b = {line for line, times in Counter(b[b_low:b_high]).items() if times == 1}
    where = {b[j]: j for j in range(b_low, b_high) if b[j] in once_in_b}
    pairs = [(i, where[a[i]]) for i in range(a_low, a_high) if a[i] in once_in_a and a[i] in where]
    ends: list[int] = []  # for each length, the smallest j in which a rising sequence can end
    rising: list[int] = []  # the index of the pair with that j
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        before.append(rising[length - 1] if length else -1)
        ends[length : length + 1] = [j]
        rising[length : length + 1] = [number]
    chain: list[tuple[int, int]] = []
    number = rising[-1] if rising else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]


def _myers(a: Sequence[str], b: Sequence[str], budget: list[int]) -> list[tuple[int, int]]:
    """The pairs of equal lines in a shortest edit script; none if the search exceeds its budget."""
    reach = {1: 0}
    trace: list[dict[int, int]] = []
    for changes in range(min(len(a) + len(b), _MOST_CHANGES) + 1):
        trace.append(reach.copy())
        budget[0] -= 2 * changes + 1
        if budget[0] < 0:
            return []
        for k in range(-changes, changes + 1, 2):
            down = k == -changes or (k != changes and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            while x < len(a) and x - k < len(b) and a[x] == b[x - k]:
                x += 1
            reach[k] = x
            if x >= len(a) and x - k >= len(b):
                return _backtrack(trace, len(a), len(b))
    return []


def _backtrack(trace: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for changes in range(len(trace) - 1, -1, -1):
        reach, k = trace[changes], x - y
        down = k == -changes or (k != changes and reach[k - 1] < reach[k + 1])
        before = k + 1 if down else k - 1
        start = (reach[before], reach[before] - before) if changes else (0, 0)
        while x > start[0] and y > start[1]:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = start
    return pairs[::-1]
