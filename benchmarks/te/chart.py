"""The chart of a replay: for each family, tokens saved and facts kept, te's beside a head/tail cut's."""

from collections.abc import Sequence
from html import escape

from .replayed import Row, summed

_WIDTH, _HEIGHT, _LEFT, _TOP = 720, 420, 70, 50
_LOWEST = 0.8  # share of facts kept where the vertical axis starts


def saved_and_kept(rows: Sequence[Row]) -> str:
    """Points on saved (across) and kept (up); a line joins te with head/tail at equal tokens."""
    parts = [_frame()]
    for name in [*sorted({row.family for row in rows if row.after < row.before}), "all"]:
        total = summed(list(rows), name)
        x = _LEFT + total.saved * (_WIDTH - _LEFT - 40)
        ours, theirs = _height(total.kept), _height(total.ends_kept)
        parts += [
            f'<line x1="{x:.0f}" y1="{ours:.0f}" x2="{x:.0f}" y2="{theirs:.0f}" stroke="#cbd5e1"/>',
            f'<circle cx="{x:.0f}" cy="{theirs:.0f}" r="4" fill="#94a3b8"/>',
            f'<circle cx="{x:.0f}" cy="{ours:.0f}" r="5" fill="#0f766e"/>',
            f'<text x="{x + 7:.0f}" y="{ours + 4:.0f}">{escape(name)}</text>',
        ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#334155">'
        f'<title>Tokens saved and facts kept</title><rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _height(kept: float) -> float:
    return _TOP + (1 - max(kept, _LOWEST)) / (1 - _LOWEST) * (_HEIGHT - _TOP - 50)


def _frame() -> str:
    lines = [
        f'<line x1="{_LEFT}" y1="{_height(share):.0f}" x2="{_WIDTH - 40}" y2="{_height(share):.0f}" stroke="#e2e8f0"/>'
        f'<text x="{_LEFT - 8}" y="{_height(share) + 4:.0f}" text-anchor="end">{share:.0%}</text>'
        for share in (0.8, 0.85, 0.9, 0.95, 1.0)
    ]
    lines += [
        f'<text x="{_LEFT + share * (_WIDTH - _LEFT - 40):.0f}" y="{_HEIGHT - 30}">{share:.0%}</text>'
        for share in (0, 0.2, 0.4, 0.6, 0.8)
    ]
    title = '<text x="12" y="22" font-size="14" font-weight="600">Facts kept (up), tokens saved (across)</text>'
    legend = (
        f'<circle cx="{_LEFT + 240}" cy="18" r="5" fill="#0f766e"/><text x="{_LEFT + 250}" y="22">te</text>'
        f'<circle cx="{_LEFT + 290}" cy="18" r="4" fill="#94a3b8"/>'
        f'<text x="{_LEFT + 300}" y="22">head and tail at equal tokens</text>'
    )
    return title + legend + "".join(lines)
