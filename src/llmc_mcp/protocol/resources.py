"""MCP resources: documents for agents, handles, the repository map, symbols.

    llmc://docs/NAME      a sidecar document: the project's own, or the one that ships with this package
    llmc://handle/ID      the rest of an earlier reply; for its owner only
    llmc://map            the repository map
    llmc://symbol/NAME    what `inspect` says of a definition
    llmc://summary        what this session did so far: turns, tools, tokens, changes

An address is looked up, never resolved: a name is one of a list, a handle is a row of the caller's, so no spelling of
an address leads to a file. Documents are opened by the same gate as every file, and every read is limited, recorded
and checked like a tool call. A long one comes in pages: `?offset=` counts lines.
"""

import os
import re
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, cast

from .. import PACKAGE
from ..app import App
from ..context import Context
from ..errors import BadArgs, FeatureDisabled, LlmcError, NotFound
from ..gate.dispatch import SCOPE, Gate
from ..gate.render import RenderedReply, fit, neutral, render
from ..session import Session
from ..tool import Result
from ..tools.inspect import inspect
from ..tools.linux_ops.fs import read_file
from ..tools.linux_ops.handles import HandlePage, linux_handle_read
from .request import LONGEST_URI

DOCS, HANDLE, MAP, SYMBOL = "llmc://docs/", "llmc://handle/", "llmc://map", "llmc://symbol/"
SUMMARY = "llmc://summary"
DOCS_TEMPLATE, HANDLE_TEMPLATE = f"{DOCS}{{name}}{{?offset}}", f"{HANDLE}{{id}}{{?offset}}"
SYMBOL_TEMPLATE = f"{SYMBOL}{{name}}"
SHIPPED = {"agents.core.min.md": "How to work here", "contracts.env.min.md": "What this environment promises"}

_SHIPPED_IN = os.path.join(PACKAGE, "docs")
_ADDRESS = re.compile(r"llmc://(docs/|handle/|symbol/|map|summary)([^?#]*)(?:\?offset=(\d{1,12}))?")
_LINES = 5_000
_BYTES_PER_TOKEN = 5  # of a map, to be sure
_TYPES = {".md": "text/markdown", ".json": "application/json"}

Entry = dict[str, Any]

_SUMMARY_ENTRY: Entry = {
    "uri": SUMMARY,
    "name": "summary",
    "title": "This session so far",
    "description": "turns, tools, tokens, time, and changes with their diffstat",
    "mimeType": "text/plain",
}


class ResourceContent(RenderedReply):
    """A resource, or a page of it; `next_uri` is where it goes on."""

    uri: str = ""
    mime_type: str = "text/plain"
    next_uri: str | None = None


class _Page(Result):
    """Lines of a document."""

    text: str
    next_offset: int | None
    offset: int
    body: ClassVar[str] = "text"

    def cut(self, kept: int) -> None:
        self.next_offset = self.offset + kept


class _Address(NamedTuple):
    kind: str
    name: str
    offset: int


class ResourceReader:
    """Lists and reads; made when the first client asks."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @property
    def _app(self) -> App:
        return self._gate.app  # another one as soon as the client opens other folders

    # --- listing ---------------------------------------------------------------------------------

    def listed(self, who: Session) -> list[Entry]:
        """Documents that are there, and the map. Handles come and go with every call: they are not listed."""
        return [*self._listed_documents(), *self._listed_map(), _SUMMARY_ENTRY] if who.may(SCOPE) else []

    def templates(self, who: Session) -> list[Entry]:
        """For resources/templates/list."""
        if not who.may(SCOPE):
            return []
        found: list[Entry] = [
            {"uriTemplate": DOCS_TEMPLATE, "name": "document", "description": "a document for agents, by its name"}
        ]
        if linux_handle_read.__name__ in self._gate.catalog.tools:
            about = "what an earlier reply was too short for, by the handle it gave"
            found.append({"uriTemplate": HANDLE_TEMPLATE, "name": "handle", "description": about})
        if inspect.__name__ in self._gate.catalog.tools:
            about = "a definition: signature, docstring, source, who calls it, its tests"
            found.append({"uriTemplate": SYMBOL_TEMPLATE, "name": "symbol", "description": about})
        return found

    def documents(self) -> dict[str, str]:
        """The sidecars that are configured: name → path. One of several files of one name is called by its path."""
        paths = self._app.config.resources.sidecars
        names = [os.path.basename(path) for path in paths]
        return {
            (name if names.count(name) == 1 else path): path
            for name, path in zip(names, paths, strict=True)
            if name not in ("", ".", "..")
        }

    def _listed_documents(self) -> Iterator[Entry]:
        for name, path in self.documents().items():
            if self._is_projects(path):
                origin = f"the project's own: {path}"
            elif name in SHIPPED:
                origin = "ships with the server"
            else:
                continue
            title = SHIPPED.get(name, name)
            yield {
                "uri": f"{DOCS}{_quoted(name)}",
                "name": name,
                "title": title,
                "description": neutral(f"{title} ({origin})"),
                "mimeType": _type_of(name),
            }

    def _is_projects(self, path: str) -> bool:
        try:
            os.close(self._app.files.open_file(self._app.files.locate(path))[0])
        except LlmcError:
            return False
        return True

    def _listed_map(self) -> Iterator[Entry]:
        if self._app.config.rag.jit_context_enabled:
            about = "the repository's most important definitions, ranked"
            yield {"uri": MAP, "name": "map", "title": "Repository map", "description": about, "mimeType": "text/plain"}

    # --- reading ---------------------------------------------------------------------------------

    def read(self, ctx: Context, uri: object, reply_bytes: int | None = None) -> ResourceContent:
        """What an address stands for, as far as a reply has room for it."""
        shown = uri[:200] if isinstance(uri, str) else ""

        def answer() -> ResourceContent:
            address = _parsed(uri)
            return self._read(ctx, address, cast(str, uri), reply_bytes)

        return self._gate.ask(ctx, "resources/read", {"uri": shown}, answer)

    def _read(self, ctx: Context, address: _Address, uri: str, reply_bytes: int | None) -> ResourceContent:
        if address.kind == HANDLE:
            return self._handle(ctx, address, uri, reply_bytes)
        if address.kind == DOCS:
            return self._document(ctx, address, uri, reply_bytes)
        if address.kind == SYMBOL:
            result = self._gate.part(ctx, inspect.__name__, {"symbol": address.name}, reply_bytes)
            text = render(result, lean=True, first_root=self._app.files.roots[0].shown).text
            return _content(uri, "text/plain", text, None)
        if address.kind == SUMMARY and not address.name:
            return self._summary(ctx, uri, reply_bytes)
        if address.kind == MAP and not address.name:
            return self._map(ctx, uri, reply_bytes)
        raise _unknown(uri)

    def _handle(self, ctx: Context, address: _Address, uri: str, reply_bytes: int | None) -> ResourceContent:
        arguments: dict[str, object] = {"handle": address.name, "offset": address.offset, "limit": _LINES}
        page = cast(HandlePage, self._gate.part(ctx, linux_handle_read.__name__, arguments, reply_bytes))
        return _content(uri, "text/plain", page.content, page.next_offset)

    def _document(self, ctx: Context, address: _Address, uri: str, reply_bytes: int | None) -> ResourceContent:
        path = self.documents().get(address.name)
        if path is None:
            raise _unknown(uri)
        kind = _type_of(address.name)
        if self._is_projects(path):
            self._gate.refuse_as(ctx, read_file.__name__, {"path": path})
        try:
            read = self._app.reader.read(self._app.files.locate(path), address.offset, _LINES, ctx.check)
        except NotFound:
            if address.name not in SHIPPED:
                raise
            lines = _shipped(address.name)[address.offset :]
            return self._page(uri, kind, _Page("".join(lines), None, address.offset), reply_bytes)
        if read.image is not None:
            from ..tool import Image

            return ResourceContent("", Image(read.image, read.mime_type or ""), uri, read.mime_type or "")
        return self._page(uri, kind, _Page(read.text, read.next_offset, read.first), reply_bytes)

    def _page(self, uri: str, kind: str, page: _Page, reply_bytes: int | None) -> ResourceContent:
        fit(page, self._gate.reply_limit(reply_bytes), lean=True, first_root="")
        return _content(uri, kind, page.text, page.next_offset)

    def _map(self, ctx: Context, uri: str, reply_bytes: int | None) -> ResourceContent:
        if not self._app.config.rag.jit_context_enabled:
            raise FeatureDisabled("the code index is switched off", hint="Setting: mcp.rag.jit_context_enabled.")
        from ..tools.index_common import caller_of

        self._gate.refuse_as(ctx, inspect.__name__, {})
        budget = self._gate.reply_limit(reply_bytes) // _BYTES_PER_TOKEN
        drawn = self._app.maps.draw(budget, caller_of(ctx))
        parts = [f"# {one.root.shown}{f' ({one.note})' if one.note else ''}\n{one.text}\n" for one in drawn]
        return self._page(uri, "text/plain", _Page("\n".join(parts), None, 0), reply_bytes)

    def _summary(self, ctx: Context, uri: str, reply_bytes: int | None) -> ResourceContent:
        from ..review.summary import as_lines, summarize_session
        from ..store.sessions import StoreReader

        self._gate.flush_usage()
        app, reader = self._app, StoreReader(ctx.session.principal, self._app.root_set)
        found = summarize_session(app.store, app.changes.journal, reader, ctx.session.session_id)
        return self._page(uri, "text/plain", _Page("\n".join(as_lines(found)) + "\n", None, 0), reply_bytes)


def _content(uri: str, kind: str, text: str, next_offset: int | None) -> ResourceContent:
    goes_on = None if next_offset is None else f"{uri.partition('?')[0]}?offset={next_offset}"
    return ResourceContent(neutral(text), None, uri, kind, goes_on)


def _parsed(uri: object) -> _Address:
    if not isinstance(uri, str) or not uri or len(uri) > LONGEST_URI:
        raise BadArgs(f"a resource is named by a URI of at most {LONGEST_URI:,} characters")
    if not uri.isascii() or not uri.isprintable():
        raise BadArgs("a URI has only printable ASCII characters; others are percent-encoded")
    found = _ADDRESS.fullmatch(uri)
    if found is None:
        raise _unknown(uri)
    return _Address(f"llmc://{found[1]}", _unquoted(found[2]), int(found[3] or 0))


def _unknown(uri: str) -> NotFound:
    return NotFound(f"there is no resource {uri[:200]}", hint="resources/list and resources/templates/list name them.")


def _unquoted(text: str) -> str:
    from urllib.parse import unquote_to_bytes

    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise BadArgs("what is percent-encoded in a URI must be UTF-8") from None


def _quoted(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9._~-]+", text):
        return text
    from urllib.parse import quote

    return quote(text, safe="")


def _type_of(name: str) -> str:
    return _TYPES.get(os.path.splitext(name)[1], "text/plain")


def _shipped(name: str) -> list[str]:
    with open(os.path.join(_SHIPPED_IN, name), encoding="utf-8") as file:
        return file.readlines()


def as_contents(content: ResourceContent) -> list[Entry]:
    """A resource as the protocol sends it; a page that is not the last names the next one."""
    first: Entry = {"uri": content.uri, "mimeType": content.mime_type}
    if content.image is not None:
        import base64

        return [{**first, "blob": base64.b64encode(content.image.data).decode()}]
    first["text"] = content.text
    if content.next_uri is None:
        return [first]
    first["_meta"] = {"llmc/nextUri": content.next_uri}
    return [first, {"uri": content.next_uri, "mimeType": "text/plain", "text": f"[cut; goes on at {content.next_uri}]"}]
