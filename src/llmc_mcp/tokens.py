"""How many tokens a text costs a model, closely enough and in microseconds.

A real tokenizer needs megabytes of vocabulary and milliseconds per reply. This counts which kinds of bytes follow
each other and weighs the counts; the weights were fitted to o200k on replies of this server's tools
(`python -m benchmarks estimate` measures the error).
"""

_CLASSES = bytearray(b"p" * 256)
for _byte in range(256):
    if 0x61 <= _byte <= 0x7A:
        _CLASSES[_byte] = 0x6C  # l: lower case
    elif 0x41 <= _byte <= 0x5A:
        _CLASSES[_byte] = 0x55  # U: upper case
    elif 0x30 <= _byte <= 0x39:
        _CLASSES[_byte] = 0x64  # d: digit
    elif _byte in (0x20, 0x09):
        _CLASSES[_byte] = 0x73  # s: space
    elif _byte in (0x0A, 0x0D):
        _CLASSES[_byte] = 0x6E  # n: new line
    elif _byte >= 0xC0:
        _CLASSES[_byte] = 0x78  # x: the first byte of a character beyond ASCII
    elif _byte >= 0x80:
        _CLASSES[_byte] = 0x79  # y: one of its others
_TABLE = bytes(_CLASSES)

_MOST_BYTES = 16  # of one token, on average; no text is cheaper, whatever the weights make of it
_SAMPLE = 256  # bytes that are looked at in each of four places of a long text

# Kind of byte, or several kinds in a row → tokens that each occurrence adds.
# fmt: off
WEIGHTS: dict[bytes, float] = {
    b"l": 0.059, b"U": 1.577, b"d": 1.617, b"s": -0.657, b"n": -0.172, b"p": 0.337, b"x": 0.230, b"y": 0.259,
    b"sl": 1.407, b"pl": 0.714, b"nl": 1.714, b"UU": -2.676, b"pp": 0.044, b"sp": 1.624, b"ss": 1.873,
    b"dd": -1.757, b"lll": 0.070, b"ssss": -1.078, b"xyyx": 0.047, b"ddd": -0.884, b"sd": 1.062,
    b"lllllll": 0.146,
}
# fmt: on


def estimate(text: str | bytes) -> int:
    """Tokens of a text, by o200k's measure; see DOCS/observability.md for how far off it may be."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if not data:
        return 0
    size = len(data)
    if size > 4 * _SAMPLE:
        step = (size - _SAMPLE) // 3
        data = b"".join(data[start : start + _SAMPLE] for start in (0, step, 2 * step, 3 * step))
    kinds = data.translate(_TABLE)
    weighed = sum(kinds.count(kind) * weight for kind, weight in WEIGHTS.items()) * size / len(data)
    return round(min(max(weighed, size / _MOST_BYTES, 1), size))
