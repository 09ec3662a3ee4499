"""Usage over time, as a chart that is drawn on the server and as the same numbers in a table; totals per tool."""

import time
from collections.abc import Callable, Mapping, Sequence

from ...gate.dispatch import Gate
from ...store.calls import by_tool
from ...store.sessions import UsageBucket, usage
from .html import Html, element, table
from .layout import HOME, Viewer, WebPage, duration, section, several

_SPANS = {"day": (86_400, 24, "%H:%M", "Last day"), "month": (30 * 86_400, 30, "%m-%d", "Last 30 days")}
_WIDTH, _HEIGHT, _FOOT = 720, 160, 18
_EVERY = 6  # columns between two labels


def usage_page(gate: Gate, viewer: Viewer, given: Mapping[str, str]) -> WebPage:
    """Tokens and calls over the last day or month."""
    chosen = given.get("span", "day")
    seconds, count, pattern, title = _SPANS.get(chosen, _SPANS["day"])
    width = seconds / count
    until = (time.time() // width + 1) * width  # whole stretches, so that a column keeps its calls
    since = until - seconds
    found = usage(gate.app.store, viewer.reader, since, until, count)
    labels = [time.strftime(pattern, time.localtime(since + width * one.number)) for one in found]
    links = element(
        "p",
        *(
            several(
                element("a", name, href=f"{HOME}/usage?span={span}", aria_current="true" if span == chosen else None),
                " ",
            )
            for span, (_, _, _, name) in _SPANS.items()
        ),
    )
    tokens = _chart(
        "Tokens", labels, found, [("out", lambda one: one.tokens_out), ("saved", lambda one: one.tokens_saved)]
    )
    made = _chart("Calls", labels, found, [("calls", lambda one: one.calls)])
    rows = [
        (label, one.calls, one.errors, f"{one.tokens_in:,}", f"{one.tokens_out:,}", f"{one.tokens_saved:,}")
        for label, one in zip(labels, found, strict=True)
        if one.calls
    ]
    head = ("from", "calls", "failed", "tokens in", "tokens out", "tokens saved")
    body = several(
        links,
        section(f"{title}: tokens to the model, and tokens saved", tokens, _legend()),
        section(f"{title}: calls", made),
        section("The same in numbers", table("Usage", head, rows, frozenset(range(1, 6)))),
        section("Per tool", _tools(gate, viewer, since)),
    )
    return WebPage("Usage", body, live=True)


def _legend() -> Html:
    words = " saved by cutting, condensing and keeping replies behind handles."
    return element("p", element("span", "■ saved", class_="good"), words, class_="quiet")


def _tools(gate: Gate, viewer: Viewer, since: float) -> Html:
    found = by_tool(gate.app.store, viewer.reader.roots, principal=viewer.reader.principal, since=since)
    head = ("tool", "calls", "failed", "median", "95 %", "tokens in", "tokens out", "tokens saved")
    rows = [
        (
            element("code", one.tool),
            f"{one.calls:,}",
            f"{one.errors:,}",
            duration(one.p50_ms),
            duration(one.p95_ms),
            f"{one.tokens_in:,}",
            f"{one.tokens_out:,}",
            f"{one.tokens_saved:,}",
        )
        for one in found
    ]
    return table("Tools", head, rows, frozenset(range(1, 8)))


Series = tuple[str, Callable[[UsageBucket], int]]


def _chart(title: str, labels: Sequence[str], found: Sequence[UsageBucket], series: Sequence[Series]) -> Html:
    """Stacked columns."""
    most = max([1, *(sum(value(one) for _, value in series) for one in found)])
    width = _WIDTH / len(found)
    columns: list[Html] = []
    for at, one in enumerate(found):
        base = float(_HEIGHT)
        for name, value in series:
            height = value(one) / most * (_HEIGHT - 14)
            base -= height
            if height:
                hover = element("title", f"{labels[at]}: {value(one):,} {title.lower()} {name}")
                columns.append(_column(hover, name, at * width + 1, base, width - 2, height))
        if at % _EVERY == 0:
            columns.append(element("text", labels[at], x=f"{at * width:.0f}", y=_HEIGHT + _FOOT - 5))
    top = element("text", f"{most:,}", x=2, y=11)
    box = f"0 0 {_WIDTH} {_HEIGHT + _FOOT}"
    return element(
        "svg", element("title", title), top, *columns, viewBox=box, role="img", aria_label=f"{title} over time"
    )


def _column(hover: Html, name: str, x: float, y: float, width: float, height: float) -> Html:
    return element("rect", hover, class_=name, x=f"{x:.1f}", y=f"{y:.1f}", width=f"{width:.1f}", height=f"{height:.1f}")
