"""The audit as chains of lines, and what shows that one was changed.

Every process that writes to the audit has a chain of its own: processes don't wait for each other. A line carries its
chain, its number in it, the hash of the line before it and, last, the hash of all that. A register counts the chains
and says up to where each was dropped by retention; so a chain that is gone as a whole is missed, too. A process that
ends orderly closes its chain.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import msgspec

_HASH = b',"hash":"'


class AuditLine(NamedTuple):
    """A line of the audit, where it was found, and what the place says about it besides: its chain and number."""

    where: str
    text: bytes
    key: tuple[str, int] | None = None


class Registered(NamedTuple):
    """A chain in the register: its number, and the last line that retention dropped (0: none) with its hash."""

    number: int
    seq: int = 0
    hash: str = ""


class Register(NamedTuple):
    """The chains by id, how many there have been, and the numbers of those that are over and dropped."""

    chains: dict[str, Registered]
    numbers: int
    ended: frozenset[int] = frozenset()


class AuditFinding(NamedTuple):
    """Something that was done to the audit: altered, removed, reordered or inserted."""

    kind: str
    chain: str
    seq: int
    where: str
    text: str


class ChainHead(NamedTuple):
    """The last line of a chain; a later audit must still hold it."""

    seq: int
    hash: str
    closed: bool


class Verdict(NamedTuple):
    """What a look at the whole audit showed. `unchained`: lines from before there were chains."""

    findings: list[AuditFinding]
    lines: int
    unchained: int
    heads: dict[str, ChainHead]


class Chain:
    """The chain of one process; safe from several threads."""

    def __init__(self) -> None:
        self.id = os.urandom(8).hex()
        self._seq, self._hash = 0, ""
        self._lock = threading.Lock()

    @property
    def has_begun(self) -> bool:
        """Whether it has a line."""
        return self._seq > 0

    def add(self, record: dict[str, object], write: Callable[[int, bytes], None]) -> None:
        """Make a record the next line and write it; if that raises, there is no such line."""
        with self._lock:
            line, hashed = self._linked(record)
            write(self._seq + 1, line)
            self._seq, self._hash = self._seq + 1, hashed

    def number(self, record: dict[str, object]) -> tuple[int, bytes]:
        """Make a record the next line, for the caller to write: whatever happens, the next one follows it."""
        with self._lock:
            line, self._hash = self._linked(record)
            self._seq += 1
            return self._seq, line

    def _linked(self, record: dict[str, object]) -> tuple[bytes, str]:
        body = msgspec.json.encode({**record, "chain": self.id, "seq": self._seq + 1, "prev": self._hash})[:-1]
        hashed = hashlib.sha256(body).hexdigest()
        return body + _HASH + hashed.encode() + b'"}', hashed


class Link(NamedTuple):
    """What a line says about its place in a chain; `intact`: its hash is that of what it says."""

    chain: str
    seq: int
    prev: str
    hash: str
    intact: bool
    record: dict[str, Any]


def read_link(text: bytes) -> Link | None:
    """The link that a line is; None for one without a chain, or that is no record at all."""
    body, _, _ = text.rpartition(_HASH)
    try:
        record: object = msgspec.json.decode(text)
        if not isinstance(record, dict) or "chain" not in record:
            return None
        fields = cast(dict[str, Any], record)
        intact = fields.get("hash") == hashlib.sha256(body).hexdigest()
        return Link(str(fields["chain"]), int(fields["seq"]), str(fields["prev"]), str(fields["hash"]), intact, fields)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        return None


class _Walk:
    """One chain, followed line by line in the order in which they are found."""

    def __init__(self, chain: str, registered: Registered, found: list[AuditFinding]) -> None:
        self._chain, self._registered, self._found = chain, registered, found
        self.seq, self.closed = registered.seq, False
        self._heads = {
            registered.hash: ""
        }  # hashes of the line with the number `seq`, and where: more than one if forged
        self._gaps: dict[int, str] = {}  # numbers that are missing so far, and where their place would be

    def step(self, line: AuditLine, link: Link) -> None:
        """Look at the next line."""
        if not link.intact:
            self._tell("altered", link.seq, line.where, "its hash is not that of what it says")
        if line.key is not None and line.key != (link.chain, link.seq):
            self._tell(
                "reordered", link.seq, line.where, f"it stands in the place of row {line.key[1]} of {line.key[0]}"
            )
        seq = self.seq + 1 if not link.intact and link.prev in self._heads else link.seq
        if seq in self._gaps:
            del self._gaps[seq]
            self._tell("reordered", seq, line.where, f"it stands after row {self.seq}")
        elif seq <= self.seq:
            if seq == self.seq and seq > self._registered.seq:
                self._heads.setdefault(link.hash, line.where)  # which one is forged is what the next line tells
            else:
                self._tell("inserted", seq, line.where, "there is a row with this number already")
        elif self.closed:
            self._tell("inserted", seq, line.where, "the chain was closed before")
        else:
            self._advance(seq, line, link)

    def _advance(self, seq: int, line: AuditLine, link: Link) -> None:
        if seq > self.seq + 1:
            self._gaps.update(dict.fromkeys(range(self.seq + 1, min(seq, self.seq + 10_000)), line.where))
            self._tell_forged(next(iter(self._heads)))
        elif link.prev in self._heads:
            self._tell_forged(link.prev)
        elif not self.seq:
            self._tell("altered", seq, line.where, "as the first row it must follow none")
        else:
            self._tell("altered", self.seq, next(iter(self._heads.values())), f"row {seq} does not follow from it")
        if seq == 1 and _number_of(link.record) != self._registered.number:
            self._tell("altered", seq, line.where, f"its chain has the number {self._registered.number}")
        self.seq, self._heads, self.closed = seq, {link.hash: line.where}, bool(link.record.get("closed"))

    def _tell_forged(self, right: str) -> None:
        for where in [where for hashed, where in self._heads.items() if hashed != right]:
            self._tell("inserted", self.seq, where, "there are two rows with this number, and the next follows another")

    def end(self) -> ChainHead:
        """No line follows."""
        first, *_ = self._heads
        self._tell_forged(first)
        missing = sorted(self._gaps)
        while missing:
            last = next(at for at, seq in enumerate(missing) if at + 1 == len(missing) or missing[at + 1] != seq + 1)
            rows = f"row {missing[0]}" if last == 0 else f"rows {missing[0]} to {missing[last]}"
            self._tell("removed", missing[0], self._gaps[missing[0]], f"{rows} should stand before this place")
            missing = missing[last + 1 :]
        if not self.seq:
            self._tell("removed", 0, "", "no row of this chain is left")
        return ChainHead(self.seq, first, self.closed)

    def _tell(self, kind: str, seq: int, where: str, text: str) -> None:
        self._found.append(AuditFinding(kind, self._chain, seq, where, text))


def _number_of(record: dict[str, Any]) -> object:
    start = record.get("start")
    return cast(dict[str, object], start).get("number") if isinstance(start, dict) else None


def verify(lines: Iterable[AuditLine], register: Register) -> Verdict:
    """Follow every chain from its first line, or from where retention dropped it, to its last."""
    found: list[AuditFinding] = []
    walks = {chain: _Walk(chain, registered, found) for chain, registered in register.chains.items()}
    count = unchained = 0
    unknown: set[str] = set()
    for line in lines:
        count += 1
        link = read_link(line.text)
        if link is None and not walks_began(walks):
            unchained += 1  # from before there were chains
        elif link is None:
            found.append(AuditFinding("inserted", "", 0, line.where, "it belongs to no chain, or is no record"))
        elif link.chain in walks:
            walks[link.chain].step(line, link)
        elif link.chain not in unknown:
            unknown.add(link.chain)
            found.append(AuditFinding("inserted", link.chain, link.seq, line.where, "the register has no such chain"))
    numbers = {one.number for one in register.chains.values()} | register.ended
    for number in sorted(set(range(1, register.numbers + 1)) - numbers)[:100]:
        found.append(AuditFinding("removed", "", 0, "", f"the register lacks the chain with the number {number}"))
    heads = {chain: walk.end() for chain, walk in walks.items()}
    return Verdict(found, count, unchained, heads)


def walks_began(walks: dict[str, _Walk]) -> bool:
    """Whether a line of any chain was seen."""
    return any(walk.seq for walk in walks.values())


def missing_heads(kept: dict[str, ChainHead], lines: Iterable[AuditLine], register: Register) -> list[AuditFinding]:
    """Of the heads that somebody wrote down elsewhere, those that the audit no longer holds: a tail was cut off."""
    sought = {(chain, head.seq): head.hash for chain, head in kept.items()}
    for line in lines:
        link = read_link(line.text)
        if link is not None and sought.get((link.chain, link.seq)) == link.hash and link.intact:
            del sought[link.chain, link.seq]
    dropped = {chain: one.seq for chain, one in register.chains.items()}
    return [
        AuditFinding("removed", chain, seq, "", "this row was the last one once, and is gone or another one")
        for chain, seq in sought
        if dropped.get(chain, 0) < seq
    ]
