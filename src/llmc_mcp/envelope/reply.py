"""The reply of `te`: text with a header, or one JSON object, which `te_run` returns as well."""

from typing import TYPE_CHECKING, ClassVar

import msgspec

from ..tokens import estimate
from ..tool import Result

if TYPE_CHECKING:
    from .families import CondensedOutput

_STDERR = 4_000  # characters from the end of stderr in a JSON reply
_VERSION = 1


class Enrichment(msgspec.Struct, omit_defaults=True):
    """How the output was condensed; `level` is all, grouped or counts, `hint` how to get at what is missing."""

    match_count: int
    truncated: bool
    handle: str | None
    tokens_estimate: int
    level: str = "all"
    hot_zone: str = ""
    total_matches: int | None = None  # of an output that is not shown whole
    hint: str = ""


class Cost(msgspec.Struct):
    """The latency of a command and the remaining budget of its session."""

    latency_ms: float
    agent_id: str
    budget_remaining: int


class TeOutput(Result):
    """A command's output as a model should read it."""

    success: bool
    mode: str
    command: str
    stdout: str
    stderr: str
    exit_code: int
    enrichment: Enrichment | None = None
    telemetry: Cost | None = None
    undo_id: str | None = None  # takes back what the command changed
    files_changed: int | None = None
    undo: str | None = None  # "none: …", where it can't be taken back
    body: ClassVar[str] = "stdout"

    def cut(self, kept: int) -> None:
        del kept
        if self.enrichment is not None:
            self.enrichment.truncated = True


def as_text(name: str, done: "CondensedOutput") -> bytes:
    """Header, body, and a pointer to the rest; an unchanged output is that alone."""
    body = done.body()
    if done.unchanged is not None:
        return body
    shown = done.shown
    meta: dict[str, object] = {"v": _VERSION, "cmd": name, **shown.counts, "level": shown.level}
    meta |= {"truncated": shown.cut, "handle": done.handle, "body_lines": len(shown.lines)}
    if shown.hot_zone:
        meta["hot_zone"] = shown.hot_zone
    meta["tokens_estimate"] = estimate(body)
    header = b"# TE_BEGIN_META\n" + msgspec.json.encode(meta) + b"\n# TE_END_META\n"
    return header + body + _pointer_to_rest(done)


def _pointer_to_rest(done: "CondensedOutput") -> bytes:
    if not done.shown.cut:
        return b""
    if done.handle is None:
        return b"# TE: the rest could not be kept; te --raw prints it all\n"
    return f"# TE: all of it: te --handle {done.handle} [--chunk N | --grep PATTERN]\n".encode()


def enrichment_of(done: "CondensedOutput", hint: str = "") -> Enrichment:
    """The enrichment of a condensed output; `hint` is the command's own."""
    shown = done.shown
    count = next(iter(shown.counts.values()), 0)
    enriched = Enrichment(count, shown.cut, done.handle, estimate(done.body()), shown.level, shown.hot_zone)
    enriched.total_matches = count if shown.cut else None
    rest = f"te --handle {done.handle} [--chunk N | --grep PATTERN] has all of it" if done.handle else ""
    enriched.hint = hint or rest
    return enriched


def stderr_text(data: bytes) -> str:
    """The end of a command's stderr."""
    text = data.decode("utf-8", "replace")
    return text if len(text) <= _STDERR else f"… [{len(text) - _STDERR:,} characters left out]\n{text[-_STDERR:]}"
