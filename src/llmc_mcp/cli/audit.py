"""`llmc audit`: the record of calls that may have changed something, and whether somebody changed it."""

import sys
from collections import deque
from itertools import chain

import msgspec

from ..command_line import JSON, Arguments, Command, Flag, UsageError
from ..config.load import load
from ..gate.audit_chain import AuditFinding, AuditLine, ChainHead, missing_heads, verify
from ..gate.audit_trail import FileTrail, StoreTrail, parts_of
from ..printing import counted, print_json, print_line
from ..store.base import Store
from ..store.opening import open_store

command = Command(
    "audit",
    "The record of calls that may have changed something: files in the data directory or, where servers share a store,"
    " rows in it. Every process writes a chain of lines that carry the hash of the line before, so that an altered,"
    " removed, reordered or inserted one is found.",
    default="show",
)


class _Report(msgspec.Struct):
    """What `verify` prints; `heads` is what a later look can be compared with."""

    ok: bool
    lines: int
    chains: int
    open_chains: int
    unchained: int
    findings: list[AuditFinding]
    heads: dict[str, ChainHead]


def _place() -> tuple[str, Store | None]:
    loaded = load()
    if not loaded.config.store.is_shared():
        return loaded.data_dir, None
    return loaded.data_dir, open_store(loaded.config.store.url, loaded.data_dir)


@command.verb(
    "verify",
    "follow every chain from end to end; status 1 if something was changed",
    flags=(
        Flag("--heads", "JSON that an earlier verify printed: what it ended with must still be there", "FILE"),
        JSON,
    ),
)
def _verify(given: Arguments) -> int:
    data_dir, store = _place()
    report = _Report(True, 0, 0, 0, 0, [], {})
    parts = parts_of(data_dir, store)
    for part in parts:
        verdict = verify(part.lines(), part.register)
        report.findings += verdict.findings
        report.lines += verdict.lines
        report.unchained += verdict.unchained
        report.heads |= verdict.heads
    if name := given.value("--heads"):
        lines, registers = chain.from_iterable(part.lines() for part in parts), [part.register for part in parts]
        known = registers[0]._replace(chains={name: one for each in registers for name, one in each.chains.items()})
        report.findings += missing_heads(_kept_heads(name), lines, known)
    report.ok, report.chains = not report.findings, len(report.heads)
    report.open_chains = sum(not head.closed for head in report.heads.values())
    if "--json" in given:
        print_json(report)
    else:
        _print(report)
    return 0 if report.ok else 1


def _kept_heads(path: str) -> dict[str, ChainHead]:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=_Report).heads
    except (OSError, msgspec.DecodeError) as exc:
        raise UsageError(f"--heads {path}: {exc}") from None


def _print(report: _Report) -> None:
    for one in report.findings:
        row = f"row {one.seq} of chain {one.chain}" if one.seq else f"chain {one.chain}" if one.chain else "line"
        print_line(f"{one.kind.upper():9} {row}{f' at {one.where}' if one.where else ''}: {one.text}")
    chains = f"{counted(report.chains, 'chain')}, {report.open_chains:,} of them open"
    told = f"{counted(report.lines, 'line')} in {chains}: {'as they were written' if report.ok else 'CHANGED'}"
    print_line(told if not report.unchained else f"{told}; {report.unchained:,} from before there were chains")
    if report.open_chains:
        print(
            "An open chain belongs to a process that runs, was killed, or whose last lines were cut off.",
            file=sys.stderr,
        )


@command.verb("show", "the latest records, oldest first", flags=(Flag("-n", "how many", "N", default="20"), JSON))
def _show(given: Arguments) -> int:
    data_dir, store = _place()
    most = given.number("-n", least=0)
    kept: deque[AuditLine] = deque(FileTrail(data_dir).lines(), maxlen=most)
    texts = [line.text for line in kept] + (StoreTrail(store).newest(most) if store is not None else [])
    records = [record for text in dict.fromkeys(texts) if (record := _record(text)) is not None]
    records = sorted(records, key=lambda record: str(record.get("ts", "")))[-most:] if most else []
    if "--json" in given:
        print_json(records)
        return 0
    for record in records:
        what = "closed" if record.get("closed") else f"{record.get('status', '')!s:<20} {record.get('tool', '')!s:<24}"
        who = f"{record.get('principal', '')} {record.get('args', '')}"
        print_line(f"{record.get('ts', '')}  {record.get('chain', '')}:{record.get('seq', '')}  {what} {who}".rstrip())
    if not records:
        print("no call changed anything yet", file=sys.stderr)
    return 0


def _record(text: bytes) -> dict[str, object] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
