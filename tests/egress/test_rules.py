"""What an entry of the network allowlist means, and which addresses a name may lead to."""

import socket
from pathlib import Path

import pytest

from llmc_mcp.config.network import PRESETS, Rules, host_name, invalid_entries, parse_entry, split_port
from llmc_mcp.egress.addresses import is_public


def packed(text: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


def test_a_host_is_allowed_at_its_port_or_at_those_of_the_web() -> None:
    rules = Rules(("a.example", "b.example:8443"))
    assert [port for port in (22, 80, 443, 8443) if rules.allow_name("a.example", port)] == [80, 443]
    assert [port for port in (22, 80, 443, 8443) if rules.allow_name("b.example", port)] == [8443]
    assert not rules.allow_name("sub.a.example", 443)


def test_a_suffix_stands_for_what_is_below_it_and_not_for_itself() -> None:
    rules = Rules(("*.a.example",))
    assert rules.allow_name("x.a.example", 443)
    assert rules.allow_name("y.x.a.example", 443)
    assert not rules.allow_name("a.example", 443)
    assert not rules.allow_name("xa.example", 443)


def test_an_address_is_allowed_as_it_is_listed() -> None:
    rules = Rules(("10.0.0.6", "192.168.1.1:5432", "[fd00::1]:443", "fd00::2"))
    assert rules.allow_address(packed("10.0.0.6"), 443)
    assert rules.allow_address(packed("192.168.1.1"), 5432)
    assert not rules.allow_address(packed("192.168.1.1"), 443)
    assert rules.allow_address(packed("fd00::1"), 443)
    assert rules.allow_address(packed("fd00::2"), 80)
    assert not rules.allow_address(packed("::ffff:10.0.0.6"), 443)
    assert not rules.allow_name("10.0.0.6", 443)


def test_presets_name_hosts_at_443_alone() -> None:
    for name, entries in PRESETS.items():
        rules = Rules((name,))
        for entry in entries:
            host, port = split_port(entry)
            assert port == 443
            assert rules.allow_name(host, 443)
            assert not rules.allow_name(host, 80)


def test_the_page_names_every_host_of_a_preset() -> None:
    page = (Path(__file__).parents[2] / "DOCS/network.md").read_text()
    for name, entries in PRESETS.items():
        assert f"| `{name}` | {', '.join(entry.removesuffix(':443') for entry in entries)} |" in page


def test_names_are_compared_in_lower_case_as_a_labels_without_a_dot_at_the_end() -> None:
    assert host_name("PyPI.org.") == "pypi.org"
    assert parse_entry("Bücher.example") == parse_entry("xn--bcher-kva.example")
    assert Rules(("Bücher.example",)).allow_name("xn--bcher-kva.example", 443)


@pytest.mark.parametrize(
    "entry",
    [
        *("", " ", "please", "*.org", "*", "a.*.example", "https://a.example", "a.example/x", "user@a.example"),
        *("a.example:0", "a.example:65536", "a.example:x", "127.1", "0x7f.1", "2130706433", "1.2.3.04", "-a.example"),
        *("[a.example]:443", "fe80::1%lo", "straße.example", "a..example", "a" * 64 + ".example", "a.example\n"),
    ],
)
def test_what_means_nothing_is_refused_and_allows_nothing(entry: str) -> None:
    assert entry in invalid_entries([entry])
    assert not Rules((entry,)).allow_name(entry, 443)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.0.1", "168.63.129.16", "169.254.169.254"),
        *("172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1", "203.0.113.1"),
        *("224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "100.100.100.200"),
        *("::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::10.0.0.1"),
        *("::ffff:169.254.169.254", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::1"),
        *("2001::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1"),
    ],
)
def test_an_address_off_the_public_internet_is_none(address: str) -> None:
    assert not is_public(packed(address))


@pytest.mark.parametrize("address", ["45.67.89.1", "1.1.1.1", "2606:4700::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"])
def test_a_public_address_is_one_in_whatever_form(address: str) -> None:
    assert is_public(packed(address))
