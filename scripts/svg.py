"""Terminal output as an SVG picture: text with colours, so that it can be read, searched and compared."""

import re
from typing import NamedTuple
from xml.sax.saxutils import escape

_COLUMN, _ROW, _MARGIN = 8.0, 18.0, 16.0
_SIZE = 13
_BACK, _FORE = "#16181d", "#d6d9df"
_SHADES = ("#5c6370", "#ef7c8e", "#8fd694", "#e8c268", "#7db7ff", "#c99bf0", "#6fd3d0", _FORE)
_COLOURS = dict(enumerate(_SHADES, 30))
_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|[\x00-\x1f]")


class Span(NamedTuple):
    """A piece of a line in one style."""

    text: str
    colour: str = _FORE
    bold: bool = False
    dim: bool = False


class _Line:
    """A line of a terminal while it is written: output after a carriage return overwrites what was there."""

    def __init__(self) -> None:
        self._cells: list[Span] = []
        self._at = 0

    def write(self, text: str, style: Span) -> None:
        missing = self._at - len(self._cells)
        self._cells += [Span(" ")] * missing
        self._cells[self._at : self._at + len(text)] = [style._replace(text=char) for char in text]
        self._at += len(text)

    def control(self, char: str, digits: str) -> None:
        if char == "\r":
            self._at = 0
        elif char == "\t":
            self._at = (self._at // 8 + 1) * 8
        elif char == "K":
            del self._cells[0 if digits == "2" else self._at :]

    def spans(self) -> list[Span]:
        joined: list[Span] = []
        for cell in self._cells:
            if joined and joined[-1][1:] == cell[1:]:
                joined[-1] = cell._replace(text=joined[-1].text + cell.text)
            else:
                joined.append(cell)
        return joined


def spans(text: str) -> list[list[Span]]:
    """What a terminal shows after this was printed, as lines of pieces."""
    lines, style, at = [_Line()], Span(""), 0
    for found in [*_SEQUENCE.finditer(text), None]:
        lines[-1].write(text[at : found.start() if found else len(text)], style)
        if found is None:
            break
        at = found.end()
        if found[2] == "m":
            style = _styled(style, found[1])
        elif found[0] == "\n":
            lines.append(_Line())
        else:
            lines[-1].control(found[2] or found[0], found[1] or "")
    return [line.spans() for line in lines]


def _styled(style: Span, codes: str) -> Span:
    for code in (int(word or 0) for word in codes.split(";")):
        if code == 0:
            style = Span("")
        elif code == 1:
            style = style._replace(bold=True)
        elif code == 2:
            style = style._replace(dim=True)
        elif code == 39:
            style = style._replace(colour=_FORE)
        elif code in _COLOURS or code - 60 in _COLOURS:
            style = style._replace(colour=_COLOURS[code if code in _COLOURS else code - 60])
    return style


def wrapped(line: list[Span], columns: int) -> list[list[Span]]:
    """A line as a terminal of that width shows it."""
    rows: list[list[Span]] = [[]]
    room = columns
    for span in line:
        text = span.text
        while text:
            if not room:
                rows.append([])
                room = columns
            rows[-1].append(span._replace(text=text[:room]))
            room, text = room - len(text[:room]), text[room:]
    return rows


def picture(text: str, *, title: str, columns: int = 120) -> str:
    """The whole picture."""
    rows = [row for line in spans(text.rstrip("\n")) for row in wrapped(line, columns)]
    widest = max(sum(len(span.text) for span in row) for row in rows)
    width, height = widest * _COLUMN + 2 * _MARGIN, len(rows) * _ROW + 2 * _MARGIN
    body = "".join(_row(row, _MARGIN + number * _ROW + _SIZE) for number, row in enumerate(rows))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{_BACK}"/>\n'
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" '
        f'font-size="{_SIZE}" fill="{_FORE}" xml:space="preserve">\n{body}</g>\n</svg>\n'
    )


def _row(row: list[Span], y: float) -> str:
    column, parts = 0, list[str]()
    for span in row:
        if span.text.strip():
            # The length is given, so that columns stand below each other in every font.
            attributes = f'x="{_MARGIN + column * _COLUMN:g}" textLength="{len(span.text) * _COLUMN:g}"'
            attributes += "" if span.colour == _FORE else f' fill="{span.colour}"'
            attributes += ' font-weight="bold"' if span.bold else ""
            attributes += ' opacity="0.65"' if span.dim else ""
            parts.append(f"<tspan {attributes}>{escape(span.text)}</tspan>")
        column += len(span.text)
    return f'<text y="{y:g}">{"".join(parts)}</text>\n' if parts else ""
