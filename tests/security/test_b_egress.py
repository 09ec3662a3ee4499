"""Commands reach what the allowlist names and nobody else: attacks B34 to B38, as root and as an ordinary user.

Each attack talks to the proxy of its session, against an internet of the test's own (`support/internet.py`): every
address has servers that note who gets there. What counts is that nobody does, not what the proxy says.
"""

import json
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ..support.hellos import client_hello, in_records, server_name_extension, with_extension
from ..support.internet import EVIL, Internet
from ..support.talk import eventually
from .arena import TOOLS, USERS, Arena, reached, wait_until_gone
from .attack import status_kb

ZONE: dict[str, Any] = {
    "allowed.example": ["45.67.89.1"],
    "wild.example": ["45.67.89.2"],
    "www.wild.example": ["45.67.89.2"],
    "six.example": ["2a0e:1234::1"],
    "loop.example": ["127.0.0.1"],
    "loop6.example": ["::1"],
    "meta.example": ["169.254.169.254"],
    "meta6.example": ["fd00:ec2::254"],
    "azure.example": ["168.63.129.16"],
    "ten.example": ["10.0.0.5"],
    "seventeen.example": ["172.16.0.1"],
    "home.example": ["192.168.0.1"],
    "cgnat.example": ["100.64.0.1"],
    "zero.example": ["0.0.0.0"],
    "multicast.example": ["224.0.0.1"],
    "mapped.example": ["::ffff:10.0.0.5"],
    "nat64.example": ["64:ff9b::a00:5"],
    "6to4.example": ["2002:a00:5::1"],
    "teredo.example": ["2001::a00:5"],
    "linklocal.example": ["fe80::1"],
    "mixed.example": ["45.67.89.1", "10.0.0.5"],
    "listed-private.example": ["10.0.0.6"],
    # The first two questions, for both families, are one lookup.
    **{f"rebind-{user}.example": [["45.67.89.1"], ["45.67.89.1"], ["127.0.0.1"]] for user in USERS},
}
LISTED = [name for name in ZONE if name != "wild.example"]
ALLOW = (*LISTED, "*.wild.example", "10.0.0.6:443", "xn--bcher-kva.example")
SCRIPT = """
import json, socket, sys
def exchange(steps):
    got = b""
    with socket.create_connection(("127.0.0.1", 61080), 20) as proxy:
        try:
            for step in steps:
                if step is None:
                    got += proxy.recv(65536)
                else:
                    proxy.sendall(bytes.fromhex(step))
            while len(got) < 5000 and (piece := proxy.recv(65536)):
                got += piece
        except ConnectionError:
            pass
    return got.hex()
print(json.dumps({name: exchange(steps) for name, steps in json.load(sys.stdin).items()}))
"""


class Row(NamedTuple):
    """What is sent, a None for each answer that is waited for, and how the last answer begins."""

    attack: str
    name: str
    steps: Sequence[bytes | None]
    answer: bytes = b"HTTP/1.1 403 "


def connect(authority: str | bytes, *headers: str) -> bytes:
    target = authority if isinstance(authority, bytes) else authority.encode()
    return b"CONNECT " + target + b" HTTP/1.1\r\n" + "".join(f"{line}\r\n" for line in headers).encode() + b"\r\n"


def get(uri: str, *lines: str, body: str = "", method: str = "GET") -> bytes:
    head = "".join(f"{line}\r\n" for line in lines)
    return f"{method} {uri} HTTP/1.1\r\n{head}\r\n{body}".encode("latin-1")


def socks(kind: int, host: bytes, port: int = 443, command: int = 1) -> list[bytes | None]:
    name = bytes([len(host)]) + host if kind == 3 else host
    return [b"\5\1\0", None, bytes([5, command, 0, kind]) + name + port.to_bytes(2, "big")]


SOCKS_NO = b"\5\0\5\2"
GRANTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
ALERT = GRANTED + bytes((21, 3, 3, 0, 2, 2, 49))
HELLO = client_hello("allowed.example")
HOST = "Host: allowed.example"

NAMES = {
    "another host": "evil.example:443",
    "another port": "allowed.example:22",
    "port zero": "allowed.example:0",
    "no port": "allowed.example",
    "port with a sign": "allowed.example:+443",
    "port in octal": "allowed.example:0443",
    "port of six digits": "allowed.example:000443",
    "decimal address": f"{int.from_bytes(socket.inet_aton(EVIL), 'big')}:443",
    "octal address": "0055.0103.0131.0102:443",
    "hex address": "0x2d.0x43.0x59.0x42:443",
    "hex in one number": "0x2d435942:443",
    "short address": "127.1:443",
    "loopback address": "127.0.0.1:443",
    "localhost": "localhost:443",
    "metadata address": "169.254.169.254:80",
    "private address": "10.0.0.5:443",
    "a listed address at another port": "10.0.0.6:80",
    "public address": f"{EVIL}:443",
    "address of an allowed name": "45.67.89.1:443",
    "mapped address": f"[::ffff:{EVIL}]:443",
    "NAT64 address": f"[64:ff9b::{EVIL}]:443",
    "loopback, six": "[::1]:443",
    "zone": "[fe80::1%25lo]:443",
    "zone behind a name": "allowed.example%lo:443",
    "name in brackets": "[allowed.example]:443",
    "an evil suffix": "allowed.example.evil:443",
    "an evil prefix": "evilallowed.example:443",
    "evil:443.allowed.example": "evil.example:443.allowed.example:443",
    "trailing dot of another": "evil.example.:443",
    "two trailing dots": "allowed.example..:443",
    "a dot in front": ".allowed.example:443",
    "wildcard apex": "wild.example:443",
    "wildcard as a name": "*.wild.example:443",
    "suffix without its dot": "evilwild.example:443",
    "userinfo": "allowed.example@evil.example:443",
    "userinfo, the other way": "evil.example:443@allowed.example:443",
    "slash": "evil.example/allowed.example:443",
    "backslash": "evil.example\\.allowed.example:443",
    "hash": "evil.example#.allowed.example:443",
    "escape": "allowed%2eexample:443",
    "NUL": "evil.example\0.allowed.example:443",
    "newline": "evil.example\n.allowed.example:443",
    "carriage return": "evil.example\r.allowed.example:443",
    "tab": "evil.example\t.allowed.example:443",
    "escape sequence": "\x1b[2Jevil.example:443",
    "10 kB": "a" * 10_000 + ".wild.example:443",
    "a label of 64": "a" * 64 + ".wild.example:443",
    "254 characters": ".".join(["a" * 60] * 4) + ".wild.example:443",
    "empty": ":443",
    "Unicode": "b\u00fccher.example:443",
    "dot of another script": "evil\u3002wild.example:443",
    "full width": "\uff45vil.example:443",
}
ADDRESSES = [
    *("loop", "loop6", "meta", "meta6", "azure", "ten", "seventeen", "home", "cgnat", "zero", "multicast"),
    *("mapped", "nat64", "6to4", "teredo", "linklocal", "mixed"),
]
ECH = with_extension(HELLO, 0xFE0D, bytes(16))
HELLOS = {
    "another name": client_hello("evil.example"),
    "no name": client_hello(None),
    "a name in another name": client_hello("allowed.example.evil.example"),
    "a trailing dot": with_extension(client_hello(None), 0, server_name_extension("allowed.example.")),
    "two names": with_extension(client_hello(None), 0, server_name_extension("allowed.example", "evil.example")),
    "two extensions": with_extension(HELLO, 0, server_name_extension("evil.example")),
    "ECH": ECH,
    "ECH in pieces": in_records(ECH, 64),
    "ESNI": with_extension(HELLO, 0xFFCE, bytes(16)),
    "another name in pieces": in_records(client_hello("evil.example"), 100),
    "one byte a record": in_records(HELLO, 1),
    "an empty record": b"\x16\x03\x01\0\0" + HELLO,
    "a hello that is too long": with_extension(HELLO, 21, bytes(17_000)),
    "a length beyond all bounds": b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(16_380),
    "plain HTTP": get("/", "Host: evil.example"),
    "SSH": b"SSH-2.0-OpenSSH_9.0\r\n",
    "another record first": b"\x15\x03\x01\0\x02\x01\0" + HELLO,
    "another message": b"\x16\x03\x01\0\x04\x02\0\0\0",
    "SSL 2": b"\x80\x2e\x01\x03\x01" + bytes(60),
    "something behind it": HELLO[:3] + (len(HELLO) - 5 + 4).to_bytes(2, "big") + HELLO[5:] + b"\x0b\0\0\0",
}
URI = "http://allowed.example/x"
REQUESTS = {
    "another host": get("http://evil.example/", "Host: evil.example"),
    "another Host": get(URI, "Host: evil.example"),
    "two Hosts": get(URI, HOST, "Host: evil.example"),
    "no Host": get(URI),
    "Host with another port": get(URI, "Host: allowed.example:8080"),
    "userinfo": get("http://allowed.example@evil.example/", "Host: evil.example"),
    "userinfo of an allowed host": get("http://evil.example@allowed.example/", HOST),
    "backslash": get("http://evil.example\\@allowed.example/", HOST),
    "hash": get("http://evil.example#@allowed.example/", HOST),
    "relative": get("/x", HOST),
    "https": get("https://allowed.example/", HOST),
    "ftp": get("ftp://allowed.example/", HOST),
    "a scheme twice": get("http://http://evil.example/", HOST),
    "length and chunks": get(URI, HOST, "Content-Length: 4", "Transfer-Encoding: chunked", method="POST"),
    "two lengths": get(URI, HOST, "Content-Length: 4", "Content-Length: 5", method="POST", body="abcd"),
    "a signed length": get(URI, HOST, "Content-Length: +4", method="POST", body="abcd"),
    "a list of lengths": get(URI, HOST, "Content-Length: 4, 4", method="POST", body="abcd"),
    "an odd coding": get(URI, HOST, "Transfer-Encoding: xchunked", method="POST"),
    "a coding twice": get(URI, HOST, "Transfer-Encoding: chunked", "Transfer-Encoding: identity", method="POST"),
    "a coding behind a space": get(URI, HOST, "Transfer-Encoding : chunked", method="POST"),
    "a folded header": get(URI, HOST, "X: a", " b"),
    "a bare newline": get(URI, HOST + "\nTransfer-Encoding: chunked"),
    "a bare carriage return": get(URI, HOST + "\rX: y"),
    "NUL in a header": get(URI, HOST, "X: a\0b"),
    "a header without a name": get(URI, HOST, ": x"),
    "a space in the request line": b"GET  http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
    "another version": b"GET http://allowed.example/ HTTP/2.0\r\nHost: allowed.example\r\n\r\n",
    "lower case": b"connect evil.example:443 HTTP/1.1\r\n\r\n",
    "upgrade": get(URI, HOST, "Connection: Upgrade", "Upgrade: websocket"),
    "h2c": get(URI, HOST, "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
    "h2 by knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a head without end": b"GET http://allowed.example/ HTTP/1.1\r\nX: " + b"a" * 40_000,
    "metadata": get("http://169.254.169.254/latest/meta-data/", "Host: 169.254.169.254"),
    "a name for metadata": get("http://meta.example/latest/", "Host: meta.example"),
    "this machine": get("http://127.0.0.1:80/", "Host: 127.0.0.1"),
    "CONNECT for another Host": connect("allowed.example:443", "Host: evil.example:443"),
    "CONNECT with a body": connect("allowed.example:443", "Content-Length: 4") + b"abcd",
}
SOCKS = {
    "another host": (socks(3, b"evil.example"), SOCKS_NO),
    "NUL": (socks(3, b"evil.example\0.allowed.example"), SOCKS_NO),
    "an address as a name": (socks(3, EVIL.encode()), SOCKS_NO),
    "an address": (socks(1, socket.inet_aton(EVIL)), SOCKS_NO),
    "a private address": (socks(1, socket.inet_aton("10.0.0.5")), SOCKS_NO),
    "a mapped address": (socks(4, socket.inet_pton(socket.AF_INET6, f"::ffff:{EVIL}")), SOCKS_NO),
    "a name for loopback": (socks(3, b"loop.example"), SOCKS_NO),
    "BIND": (socks(3, b"allowed.example", command=2), SOCKS_NO),
    "UDP": (socks(3, b"allowed.example", command=3), SOCKS_NO),
    "SOCKS4": ([b"\4\1\1\xbb" + socket.inet_aton(EVIL) + b"\0\r\n\r\n"], b"HTTP/1.1 403 "),
}
ROWS = [
    *(Row("b35", f"CONNECT: {name}", [connect(text)]) for name, text in NAMES.items()),
    *(Row("b35", f"leads to {name}", [connect(f"{name}.example:443")]) for name in ADDRESSES),
    *(Row("b35", f"SOCKS: {name}", steps, answer) for name, (steps, answer) in SOCKS.items()),
    *(
        Row("b36", f"ClientHello: {name}", [connect("allowed.example:443"), None, sent], ALERT)
        for name, sent in HELLOS.items()
    ),
    *(Row("b37", f"HTTP: {name}", [sent]) for name, sent in REQUESTS.items()),
]


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    base = tmp_path_factory.mktemp("internet")
    names = [*LISTED, "wild.example", "*.wild.example", "evil.example"]
    made = Internet(base, ZONE, names)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module", params=USERS)
def arena(request: pytest.FixtureRequest, internet: Internet) -> Iterator[Arena]:
    tools = {"run_cmd_allowlist": (*TOOLS, "curl", "ping"), "network_allow": ALLOW}
    with Arena("workspace", request.param, within=internet.within, tools=tools) as made:
        (made.root / "ca.pem").write_bytes(internet.ca.read_bytes())
        made.hand_over()
        yield made


class Outcome(NamedTuple):
    """What the attacks of one kind of user led to: the answers, and who was reached."""

    answers: dict[str, bytes]
    hits: list[dict[str, Any]]
    warnings: list[str]


@pytest.fixture(scope="module")
def outcome(arena: Arena, internet: Internet) -> Outcome:
    internet.forget()
    steps = {row.name: [None if step is None else step.hex() for step in row.steps] for row in ROWS}
    done = arena.run(["python3", "-c", SCRIPT], stdin=json.dumps(steps), timeout=110)
    assert done.get("exit_code") == 0, done
    answers = {name: bytes.fromhex(answer) for name, answer in json.loads(done["stdout"]).items()}
    return Outcome(answers, [hit for hit in internet.hits() if "name" not in hit], done["warnings"])


def reached_by(hits: list[dict[str, Any]]) -> list[tuple[str, str | None, str]]:
    """The requests among hits: to which address, for which names."""
    return [(hit["to"], hit["sni"], hit["host"]) for hit in hits if "path" in hit]


def rows(attack: str) -> Any:
    return pytest.mark.parametrize("row", [row for row in ROWS if row.attack == attack], ids=lambda row: row.name)


def test_there_are_enough_attacks_and_none_got_through(outcome: Outcome) -> None:
    assert len(ROWS) >= 100
    assert outcome.hits == []
    assert outcome.answers.keys() == {row.name for row in ROWS}


@rows("b35")
def test_b35_a_name_or_address_that_is_not_listed_is_refused(outcome: Outcome, row: Row) -> None:
    assert outcome.answers[row.name].startswith(row.answer)


@rows("b36")
def test_b36_a_tunnel_is_for_tls_with_the_name_it_was_granted_for(outcome: Outcome, row: Row) -> None:
    assert outcome.answers[row.name] == row.answer


@rows("b37")
def test_b37_an_ambiguous_or_foreign_http_request_is_refused(outcome: Outcome, row: Row) -> None:
    assert outcome.answers[row.name].startswith(row.answer)


def test_what_is_listed_is_reached(arena: Arena, internet: Internet) -> None:
    internet.forget()
    line = "curl -sS --cacert ca.pem"
    reachable = {
        f"{line} https://allowed.example/hello": ("45.67.89.1", "allowed.example"),
        f"{line} https://ALLOWED.example/hello": ("45.67.89.1", "allowed.example"),
        f"{line} http://allowed.example/hello": ("45.67.89.1", "allowed.example"),
        f"{line} https://www.wild.example/hello": ("45.67.89.2", "www.wild.example"),
        f"{line} https://six.example/hello": ("2a0e:1234::1", "six.example"),
        f"{line} https://listed-private.example/hello": ("10.0.0.6", "listed-private.example"),
        f"{line} --proxy socks5h://127.0.0.1:61080 https://allowed.example/hello": ("45.67.89.1", "allowed.example"),
        f"{line} --insecure --proxy socks5h://127.0.0.1:61080 https://10.0.0.6/hello": ("10.0.0.6", "10.0.0.6"),
    }
    for command, (address, host) in reachable.items():
        done = arena.run(command)
        assert done["stdout"].lower() == f"hello from {host}", done
        assert done["warnings"] == []
        assert internet.hits()[-1]["to"] == address


def test_b35_an_allowed_name_that_later_leads_elsewhere_is_dialled_where_it_was_checked(
    arena: Arena, internet: Internet
) -> None:
    """Names are looked up once per connection: the first answer is public, every later one is this machine."""
    internet.forget()
    name = f"rebind-{arena.who}.example"
    done = arena.run(["bash", "-c", f"for i in 1 2 3; do curl -sS --cacert ca.pem https://{name}/hello; done"])
    assert done["stdout"] == f"hello from {name}", done
    hits = internet.hits()
    assert {hit["to"] for hit in hits if "to" in hit} == {"45.67.89.1"}
    assert sum(hit.get("name") == name for hit in hits) >= 4


def test_b37_only_the_first_request_of_a_connection_is_answered(arena: Arena, internet: Internet) -> None:
    internet.forget()
    second = get("http://evil.example/", "Host: evil.example")
    pipelined = {
        "behind a request": get("http://allowed.example/hello", HOST) + second,
        "behind a body": get(URI, HOST, "Content-Length: 3", method="POST", body="abc") + second,
        "behind chunks": get(URI, HOST, "Transfer-Encoding: chunked", method="POST", body="3\r\nabc\r\n0\r\n\r\n")
        + second,
        "in a chunk's extension": get(
            URI, HOST, "Transfer-Encoding: chunked", method="POST", body=f"3;{second.decode()}\r\nabc\r\n0\r\n\r\n"
        ),
        "as a trailer": get(URI, HOST, "Transfer-Encoding: chunked", method="POST", body=f"0\r\n{second.decode()}"),
    }
    steps = {name: [sent.hex()] for name, sent in pipelined.items()}
    done = arena.run(["python3", "-c", SCRIPT], stdin=json.dumps(steps), timeout=60)
    answers = {name: bytes.fromhex(answer) for name, answer in json.loads(done["stdout"]).items()}
    assert answers["behind a request"].endswith(b"\r\nConnection: close\r\n\r\nhello from allowed.example")
    assert answers["behind a body"].endswith(b"got abc")
    assert answers["behind chunks"].endswith(b"got abc")
    assert {host for _, _, host in reached_by(internet.hits())} == {"allowed.example"}


def test_b37_a_redirect_to_a_denied_host_and_a_switch_of_protocols_lead_nowhere(
    arena: Arena, internet: Internet
) -> None:
    internet.forget()
    done = arena.run("curl -sSL --cacert ca.pem http://allowed.example/redirect")
    assert done["exit_code"] != 0
    assert any("denied evil.example:443" in warning for warning in done["warnings"])
    done = arena.run("curl -sS -o /dev/null -w '%{http_code}' http://allowed.example/switch")
    assert done["stdout"] == "502"
    assert {hit["to"] for hit in internet.hits() if "to" in hit} == {"45.67.89.1"}


AROUND = """
evil, host = sys.argv[1:]
def tcp(address, port=443, family=socket.AF_INET):
    with socket.socket(family) as sock:
        sock.settimeout(5)
        sock.connect((address, port))
def udp(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.2)
        sock.sendto(b"x" * 1200, (address, port))
        sock.recv(10)
for name in [name for name in os.environ if "proxy" in name.lower()]:
    del os.environ[name]
attempt("raw TCP", lambda: tcp(evil))
attempt("raw TCP to an allowed address", lambda: tcp("45.67.89.1"))
attempt("TCP over six", lambda: tcp("2a0e:1234::1", 443, socket.AF_INET6))
attempt("UDP", lambda: udp(evil, 443))
attempt("DNS tunnel", lambda: udp(evil, 53))
attempt("DNS of the host", lambda: udp("127.0.0.1", 53))
attempt("ICMP", lambda: 1 / (os.system("ping -c1 -W1 %s >/dev/null 2>&1" % evil) == 0))
attempt("raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP))
attempt("packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt("vsock", lambda: socket.socket(socket.AF_VSOCK).connect((2, 80)))
attempt("resolver", lambda: socket.getaddrinfo("allowed.example", 443))
attempt("variables unset", lambda: __import__("urllib.request").request.urlopen("http://allowed.example/", timeout=5))
attempt("loopback of the host", lambda: tcp("127.0.0.1", 443))
attempt("unix socket of the host", lambda: socket.socket(socket.AF_UNIX).connect(host))
attempt("the proxy's port", lambda: socket.create_server(("127.0.0.1", 61080)))
attempt("the proxy's port on all addresses", lambda: socket.create_server(("", 61080)))
attempt("the proxy's port, shared", lambda: socket.create_server(("127.0.0.1", 61080), reuse_port=True))
"""


def test_b34_there_is_no_way_around_the_proxy(arena: Arena, internet: Internet) -> None:
    internet.forget()
    path = arena.outside / "agent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o777)
        listener.listen()
        try:
            assert arena.python(AROUND, EVIL, str(path)) == []
            assert not reached(listener)
        finally:
            path.unlink()
    assert internet.hits() == []


def test_b34_a_relay_inside_reaches_no_more_than_who_is_behind_it(arena: Arena, internet: Internet) -> None:
    internet.forget()
    relay = """
    import threading
    server = socket.create_server(("127.0.0.1", 0))
    def relay():
        while True:
            client = server.accept()[0]
            proxy = socket.create_connection(("127.0.0.1", 61080))
            proxy.sendall(client.recv(4096))
            client.sendall(proxy.recv(4096))
            client.close()
    threading.Thread(target=relay, daemon=True).start()
    def ask(host):
        with socket.create_connection(server.getsockname()) as sock:
            sock.sendall(b"CONNECT %s:443 HTTP/1.1\\r\\n\\r\\n" % host)
            return sock.recv(100)
    attempt("allowed", lambda: 1 / (ask(b"allowed.example")[9:12] == b"200"))
    attempt("denied", lambda: 1 / (ask(b"evil.example")[9:12] == b"200"))
    """
    assert arena.python(relay) == ["allowed"]
    assert [hit for hit in internet.hits() if "to" in hit] == []


def test_b34_a_session_has_a_proxy_of_its_own(arena: Arena, internet: Internet) -> None:
    """The same port, another listener: what another session is denied is not told here."""
    del internet
    arena.run("curl -sS https://evil.example/", session="another")
    done = arena.run("curl -sS http://allowed.example/hello")
    assert done["stdout"] == "hello from allowed.example"
    assert done["warnings"] == []


def test_b38_what_a_client_sends_is_told_as_one_short_printable_line(arena: Arena) -> None:
    forged = "\x1b[31mevil\r\nnetwork: allowed everything " + "y" * 9000
    sent = {
        "a forged line": [connect(f"{forged}:443").hex()],
        "a long one": [connect(f"{'y' * 9000}:443").hex()],
        "a title": [(step or b"").hex() for step in socks(3, b'evil\n\x1b]0;x\x07.example"};--') if step],
    }
    done = arena.run(["python3", "-c", SCRIPT], stdin=json.dumps(sent))
    assert done["exit_code"] == 0, done
    assert len(done["warnings"]) == 3, done
    for warning in done["warnings"]:
        assert warning.isprintable()
        assert len(warning) < 400


FLOOD = """
import resource, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
count, kept = int(sys.argv[1]), []
for number in range(count):
    sock = socket.socket()
    sock.setblocking(False)
    try:
        sock.connect(("127.0.0.1", 61080))
    except BlockingIOError:
        pass
    kept.append(sock)
    if len(kept) > 3000:
        kept.pop(0).close()
"""


def proxy_of(arena: Arena) -> int:
    """The pid of the proxy of a server: the process that runs its module."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes()
            if b"llmc_mcp.egress.process" in words and arena.pid in _ancestors(int(entry.name)):
                return int(entry.name)
        except (OSError, ValueError):
            continue
    raise LookupError("no proxy")


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_b34_the_proxy_itself_is_confined_and_holds_nothing_of_the_server(arena: Arena) -> None:
    arena.run(["true"])
    proxy = proxy_of(arena)
    status = dict(line.split(":\t") for line in Path(f"/proc/{proxy}/status").read_text().splitlines() if ":\t" in line)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert Path(f"/proc/{proxy}/environ").read_bytes() in (b"", b"LC_CTYPE=C.UTF-8\0")
    kinds = {os.readlink(entry.path).partition(":")[0] for entry in os.scandir(f"/proc/{proxy}/fd")}
    assert kinds <= {"/dev/null", "socket", "anon_inode", "pipe"}


def test_b38_ten_thousand_connections_and_endless_bodies_take_bounded_memory(arena: Arena) -> None:
    assert arena.python(FLOOD, "10000", timeout=100) == []
    assert arena.run("curl -sS http://allowed.example/hello")["stdout"] == "hello from allowed.example"
    arena.run("timeout 1 curl -sS http://allowed.example/endless -o /dev/null")
    proxy = proxy_of(arena)
    assert status_kb(proxy, "VmHWM") < 40 << 10
    assert len(os.listdir(f"/proc/{proxy}/fd")) < 1_700


WAITING = """
import os, socket, time
open("ready", "w").close()
while not os.path.exists("killed"):
    time.sleep(0.02)
try:
    with socket.create_connection(("127.0.0.1", 61080), 20) as proxy:
        proxy.sendall(b"GET http://allowed.example/hello HTTP/1.1\\r\\nHost: allowed.example\\r\\n\\r\\n")
        print("answer:", proxy.recv(100))
except ConnectionError as exc:
    print("answer:", b"")
"""


def test_b38_a_killed_proxy_reaches_nobody_and_the_next_command_brings_another(
    arena: Arena, internet: Internet
) -> None:
    first = proxy_of(arena)
    arena.order(["python3", "-c", WAITING], timeout=60)
    assert eventually((arena.root / "ready").exists)
    watcher = os.pidfd_open(first)
    os.kill(first, 9)
    assert wait_until_gone([watcher])
    internet.forget()
    (arena.root / "killed").touch()
    assert arena.answer()["stdout"] == "answer: b''\n"
    assert internet.hits() == []
    assert arena.run("curl -sS http://allowed.example/hello")["stdout"] == "hello from allowed.example"
    assert proxy_of(arena) != first
    for name in ("ready", "killed"):
        (arena.root / name).unlink()
