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
    b"l": -0.037, b"U": 0.940, b"d": 1.677, b"s": -0.619, b"n": -0.486, b"p": 0.375, b"x": 0.833, b"y": 0.383,
    b"sl": 1.540, b"pl": 0.929, b"nl": 2.033, b"lU": -1.266, b"UU": -1.410, b"sU": 0.411, b"pU": 0.641,
    b"pp": 0.046, b"ps": -0.078, b"sp": 1.422, b"ss": 1.972, b"nn": 0.612, b"ns": 0.395, b"pn": 0.080,
    b"dd": -1.739, b"pd": -0.247, b"sd": 1.686, b"ld": -0.674, b"dl": 1.040, b"ddd": -1.211, b"lll": 0.254,
    b"lllllll": 0.290, b"pppp": -0.392, b"ssss": -1.511, b"UUU": -0.138, b"Ul": 0.869, b"xyy": -0.764,
    b"xyyx": -0.280, b"xyx": -1.656,
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
