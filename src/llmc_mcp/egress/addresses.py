"""Which addresses a name may lead to: those on the public internet.

A name is anybody's to point at this machine, at the local network or at a cloud's metadata service, so what it
resolves to is checked, in every form that stands for an address of the other family.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

_NOT_PUBLIC_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    )
)  # fmt: skip
_GLOBAL_6 = IPv6Network("2000::/3")
# Teredo and other special assignments, documentation twice, 6to4: no service is reached by these alone.
_NOT_PUBLIC_6 = tuple(IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
# An IPv4 address in the last four bytes, which is where such a packet goes: mapped, and NAT64.
_EMBEDDING = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))


def is_public(address: bytes) -> bool:
    """Whether an address, as 4 or 16 bytes, is one that anybody on the internet can reach."""
    if len(address) == 4:
        four = IPv4Address(address)
        return not any(four in network for network in _NOT_PUBLIC_4)
    six = IPv6Address(address)
    if any(six in network for network in _EMBEDDING):
        return is_public(address[12:])
    return six in _GLOBAL_6 and not any(six in network for network in _NOT_PUBLIC_6)
