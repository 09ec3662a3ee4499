"""Markup that is safe by construction: a string is text, and escaped, unless it is `Html` that this module made."""

from collections.abc import Iterable
from html import escape
from urllib.parse import urlencode

from ...visible import visible

_VOID = frozenset({"br", "hr", "input", "link", "meta"})


class Html(str):
    """Markup. Only `element` and `document` make it."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]


def text(value: str) -> str:
    """Text as markup shows it: escaped for HTML, with control and bidirectional characters visible."""
    return escape(visible(value, keep="\n\t"))


def element(tag: str, *children: Child, **attributes: str | int | bool | None) -> Html:
    """An element. In names of attributes `_` is `-`, and a trailing one is dropped: `class_`, `aria_label`."""
    words = [tag]
    for name, value in attributes.items():
        spelled = name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(spelled)
        elif value is not None and value is not False:
            words.append(f'{spelled}="{text(str(value))}"')
    opening = f"<{' '.join(words)}>"
    return Html(opening if tag in _VOID else f"{opening}{joined(children)}</{tag}>")


def joined(children: Iterable[Child]) -> Html:
    """Several children, one after the other."""
    return Html("".join(map(_rendered, children)))


def _rendered(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return text(child)
    if isinstance(child, int | float):
        return str(child)
    return joined(child)


def document(root: Html) -> bytes:
    """A whole page as bytes; a lone surrogate of a file's name is shown as a question mark."""
    return f"<!doctype html>{root}".encode("utf-8", "replace")


def address(path: str, **parameters: str | int | None) -> str:
    """The address of a page of this server, with its parameters."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def link(label: Child, path: str, **parameters: str | int | None) -> Html:
    """A link to a page of this server."""
    return element("a", label, href=address(path, **parameters))


def table(caption: str, head: Iterable[str], rows: Iterable[Iterable[Child]], numbers: frozenset[int]) -> Html:
    """A table in a box that scrolls sideways; the columns of `numbers` are aligned to the right."""
    names = list(head)
    cells = [
        element("tr", *(element("td", cell, class_="n" if at in numbers else None) for at, cell in enumerate(row)))
        for row in rows
    ]
    if not cells:
        return element("p", f"No {caption.lower()} yet.", class_="quiet")
    top = [element("th", name, scope="col", class_="n" if at in numbers else None) for at, name in enumerate(names)]
    inside = element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", element("tr", *top)),
        element("tbody", *cells),
    )
    return element("div", inside, class_="wide", tabindex=0, role="region", aria_label=caption)
