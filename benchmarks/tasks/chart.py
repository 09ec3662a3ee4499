"""The charts in README: tokens per task, drawn as SVG without a library."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import Contestant

TARGET = Path(__file__).resolve().parents[2] / "DOCS" / "images"
_COLOURS = {"llmc": "#0f766e", "filesystem": "#94a3b8", "Desktop Commander": "#f59e0b"}
_ROW, _LEFT, _WIDTH = 34, 190, 760


def write_charts(contestants: "Sequence[Contestant]") -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    shown = [one for one in contestants if one.name in _COLOURS]
    (TARGET / "tokens.svg").write_text(tokens_chart(shown))


def tokens_chart(contestants: "Sequence[Contestant]") -> str:
    """A bar per task and server on a logarithmic scale; the figure stands at its end."""
    names = list(contestants[0].taken)
    most = max(taken.answered for one in contestants for taken in one.taken.values())
    scale = (_WIDTH - _LEFT - 70) / math.log10(most)
    parts: list[str] = []
    for row, name in enumerate(names):
        top = 56 + row * _ROW
        parts.append(f'<text x="{_LEFT - 8}" y="{top + 17}" text-anchor="end">{escape(name)}</text>')
        bars = [one for one in contestants if name in one.taken]
        for place, one in enumerate(bars):
            value = max(1, one.taken[name].answered)
            length, y = max(2.0, math.log10(value) * scale), top + 2 + place * 9
            parts.append(f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="8" fill="{_COLOURS[one.name]}"/>')
            parts.append(f'<text x="{_LEFT + length + 4:.1f}" y="{y + 7.5}" class="figure">{value:,}</text>')
    legend = "".join(
        f'<rect x="{_LEFT + place * 160}" y="30" width="10" height="10" fill="{_COLOURS[one.name]}"/>'
        f'<text x="{_LEFT + place * 160 + 15}" y="39">{escape(one.name)}</text>'
        for place, one in enumerate(contestants)
    )
    height = 66 + len(names) * _ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#334155">'
        "<title>Tokens of the replies, per task</title><style>.figure{font-size:9px}</style>"
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
        '<text x="12" y="20" font-size="14" font-weight="600">Tokens of the replies, per task (logarithmic)</text>'
        f"{legend}{''.join(parts)}</svg>\n"
    )
