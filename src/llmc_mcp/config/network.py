"""Which hosts commands may reach: the entries of `mcp.tools.network_allow`, the presets, and how names are compared.

Standard library only: the proxy, which must stay small, imports this file.
"""

import re
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

PRESETS: Mapping[str, tuple[str, ...]] = {
    "python": ("pypi.org:443", "files.pythonhosted.org:443"),
    "node": ("registry.npmjs.org:443", "registry.yarnpkg.com:443"),
    "rust": ("crates.io:443", "index.crates.io:443", "static.crates.io:443", "static.rust-lang.org:443"),
    "go": ("proxy.golang.org:443", "sum.golang.org:443"),
    "git": (
        *("github.com:443", "codeload.github.com:443", "raw.githubusercontent.com:443"),
        *("objects.githubusercontent.com:443", "gitlab.com:443", "bitbucket.org:443", "codeberg.org:443"),
    ),
}
_PORTS = (80, 443)  # of an entry that names none
_LONGEST_NAME = 253
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # as the last label: libraries read such a name as an address
_PORT = re.compile(r"[1-9][0-9]{0,4}")


class Destination(NamedTuple):
    """What one entry allows: a name, every name below a suffix, or an address; at some ports."""

    name: str = ""
    suffix: str = ""  # with its dot in front
    address: bytes = b""
    ports: tuple[int, ...] = _PORTS


def host_name(text: str) -> str:
    """A host's name as it is compared: lower case, A-labels, no dot at the end. ValueError if it is no name."""
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("not a host name")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError("an address in an unusual form")
    return name


def address_bytes(text: str) -> bytes | None:
    """An address in its usual form as bytes; None for anything else, a name perhaps."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        return socket.inet_pton(family, text)
    except (OSError, ValueError, UnicodeError):
        return None


def split_port(text: str) -> tuple[str, int]:
    """`host:port` or `[address]:port` in its two parts; 0 for a port that is left out. ValueError if it is neither."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or ":" not in host or (rest and not rest.startswith(":")):
            raise ValueError("not an address in brackets")
        port = rest[1:] if rest else None
    else:
        host, colon, after = text.partition(":")
        port = after if colon else None
    if port is None:
        return host, 0
    if not _PORT.fullmatch(port) or int(port) > 0xFFFF:
        raise ValueError("not a port")
    return host, int(port)


def parse_entry(text: str) -> list[Destination]:
    """What an entry of the list means: a preset's name, `host`, `host:port`, `*.suffix`, or an address.

    ValueError with the reason for one that means nothing.
    """
    if "/" in text:
        raise ValueError("an address of a page, not a host")
    if text in PRESETS:
        return [one for entry in PRESETS[text] for one in parse_entry(entry)]
    bare = address_bytes(text)
    host, port = (text, 0) if bare is not None else split_port(text)
    ports = (port,) if port else _PORTS
    address = bare if bare is not None else address_bytes(host)
    if address is not None:
        return [Destination(address=address, ports=ports)]
    wildcard = host.startswith("*.")
    name = host_name(_a_labels(host.removeprefix("*.")))
    if "." not in name and not port:
        raise ValueError(f"neither a preset ({', '.join(PRESETS)}) nor a host; one without a dot needs a port")
    if wildcard and "." not in name:
        raise ValueError("a wildcard for a whole top-level domain")
    return [Destination(suffix=f".{name}", ports=ports) if wildcard else Destination(name=name, ports=ports)]


def _a_labels(name: str) -> str:
    """A name in Unicode as DNS has it; ValueError where two readings of it differ."""
    if name.isascii():
        return name
    encoded = name.encode("idna")
    if encoded.decode("idna") != name.lower():
        raise ValueError("an ambiguous name: write it as xn--…")
    return encoded.decode("ascii")


DENIED, ALLOWED = "!", "+"  # what an entry begins with that decides before the list does, in its order


class Rules:
    """The destinations that are allowed; an entry that means nothing allows nothing."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._names: set[tuple[str, int]] = set()
        self._suffixes: set[tuple[str, int]] = set()
        self._addresses: set[tuple[bytes, int]] = set()
        self._decided: list[tuple[bool, Rules]] = []
        for entry in entries:
            if entry[:1] in (DENIED, ALLOWED):
                self._decided.append((entry[0] == ALLOWED, Rules([entry[1:]])))
                continue
            try:
                found = parse_entry(entry)
            except ValueError:
                continue
            for one in found:
                self._add(one)

    def _decision(self, matches: "Callable[[Rules], bool]") -> bool | None:
        return next((allowed for allowed, rules in self._decided if matches(rules)), None)

    def _add(self, one: Destination) -> None:
        for port in one.ports:
            if one.address:
                self._addresses.add((one.address, port))
            elif one.suffix:
                self._suffixes.add((one.suffix, port))
            else:
                self._names.add((one.name, port))

    def allow(self, name: str, address: bytes, port: int) -> bool:
        """Whether a name or, where that is empty, an address is listed."""
        return self.allow_name(name, port) if name else self.allow_address(address, port)

    def allow_name(self, name: str, port: int) -> bool:
        """Whether a name, in the form of `host_name`, is listed."""
        decided = self._decision(lambda rules: rules.allow_name(name, port))
        if decided is not None:
            return decided
        if (name, port) in self._names:
            return True
        labels = name.split(".")
        return any((f".{'.'.join(labels[at:])}", port) in self._suffixes for at in range(1, len(labels)))

    def allow_address(self, address: bytes, port: int) -> bool:
        """Whether an address is listed as such."""
        decided = self._decision(lambda rules: rules.allow_address(address, port))
        if decided is not None:
            return decided
        return (address, port) in self._addresses


def invalid_entries(entries: Iterable[str]) -> dict[str, str]:
    """The entries that mean nothing, and why."""
    found: dict[str, str] = {}
    for entry in entries:
        try:
            parse_entry(entry)
        except ValueError as exc:
            found[entry] = str(exc)
    return found
