"""A team's servers on one PostgreSQL: a token, a cookie, a link and a limit count on all of them, as on one."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx2 as httpx
import psycopg
import pytest

from llmc_mcp.config.schema import Auth
from llmc_mcp.errors import InvalidArgument
from llmc_mcp.permissions.tokens import OWNER, SCOPES, TokenTable, digest
from llmc_mcp.store.postgres import PostgresStore
from llmc_mcp.web.auth import Principal, Tokens, issue, rotate_owner

from ..support.client import PATIENCE
from ..support.http_server import TOKEN, UNHURRIED, HttpServer, endless
from ..support.postgres import Cluster
from ..support.signals import obeying_hang_ups
from ..support.talk import eventually
from ..support.workspace import Workspace

CALL = {"name": "stat", "args": {"path": "."}}
LIMITS = ("limits.rate_limit_rps=0.001", "limits.rate_limit_burst=300", "limits.concurrency_per_token=3")
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "stat", "arguments": {"path": "."}}}


class Team(NamedTuple):
    """Two servers with a data directory each, and their store."""

    one: HttpServer
    two: HttpServer
    store: PostgresStore
    url: str
    root: Path

    @property
    def table(self) -> TokenTable:
        return TokenTable(lambda: self.store)


@pytest.fixture(scope="module")
def team(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    made, url = Workspace(tmp_path_factory.mktemp("team")), postgres.fresh()
    settings = [word for setting in LIMITS for word in ("--set", setting)]

    def server(name: str) -> HttpServer:
        data = str(tmp_path_factory.mktemp(name))
        environment = {"LLMC_DATA_DIR": data, "LLMC_MCP_STORE_URL": url}
        with obeying_hang_ups():
            return HttpServer(made.root, *UNHURRIED, *settings, "--log-level", "info", env=environment)

    with server("one") as one, server("two") as two:
        store = PostgresStore(url, str(tmp_path_factory.mktemp("store")))
        yield Team(one, two, store, url, made.root)
        store.close()


def status(server: HttpServer, token: str) -> int:
    with server.client(token) as client:
        return client.post("/tool", json=CALL).status_code


def statuses(team: Team, token: str, expected: int) -> bool:
    """Whether both servers come to answer a token so, within a moment."""
    return eventually(lambda: status(team.one, token) == expected) and eventually(
        lambda: status(team.two, token) == expected
    )


def test_a_token_counts_on_all_servers_from_its_making_to_its_removal(team: Team) -> None:
    environment = {**os.environ, "LLMC_DATA_DIR": str(team.root.parent / "operator"), "LLMC_MCP_STORE_URL": team.url}
    llmc = [sys.executable, "-c", "from llmc_mcp.cli.main import main; main()", "token"]
    made = subprocess.run([*llmc, "create", "visitor"], env=environment, capture_output=True, text=True, check=True)
    token = made.stdout.strip()
    assert statuses(team, token, 200)
    again = team.table.rotate("visitor")
    assert statuses(team, token, 401)
    assert statuses(team, again, 200)
    with (
        ThreadPoolExecutor(1) as pool,
        team.one.client(again) as client,
        team.one.client() as owner,
    ):
        under_way = pool.submit(
            lambda: client.post("/tool", json={"name": "read_file", "args": endless(team.root)}).status_code
        )
        assert eventually(lambda: "llmc_calls_under_way 1.0" in owner.get("/metrics").text)
        subprocess.run([*llmc, "revoke", "visitor"], env=environment, capture_output=True, check=True)
        assert under_way.result(PATIENCE) == 401
    assert eventually(lambda: status(team.two, again) == 401)
    assert again not in team.one.log + team.two.log
    stored = [str(row) for row in team.store.query("SELECT * FROM tokens")]
    assert not [row for row in stored if again in row or token in row]


def cookie_of(reply: httpx.Response) -> dict[str, str]:
    found = re.search(r"llmc_session=([^;]+)", reply.headers["set-cookie"])
    assert found is not None
    return {"cookie": f"llmc_session={found[1].strip(chr(34))}"}


def pages(team: Team, cookie: dict[str, str]) -> list[int]:
    """What both servers say to a browser with a cookie."""
    with team.one.client("") as one, team.two.client("") as two:
        return [client.get("/docs", headers=cookie).status_code for client in (one, two, two, one)]


def sign_in(server: HttpServer, token: str) -> dict[str, str]:
    with server.client("") as browser:
        reply = browser.post("/login", data={"token": token}, headers={"origin": server.url})
        assert reply.status_code == 303
        return cookie_of(reply)


def test_a_browser_that_a_proxy_spreads_over_servers_stays_signed_in_and_signs_out_everywhere(team: Team) -> None:
    cookie = sign_in(team.one, TOKEN)
    assert pages(team, cookie) == [200] * 4  # at once: a redirect may lead to the other server
    with team.two.client("") as two:
        assert two.post("/logout", json={}, headers={**cookie, "origin": team.two.url}).status_code == 204
    assert pages(team, cookie)[1:3] == [401, 401]
    assert eventually(lambda: pages(team, cookie) == [401] * 4)  # whoever kept a copy of it, too
    assert team.store.query("SELECT * FROM sign_ins") == []


def test_a_cookie_ends_with_its_token_and_with_the_secret_that_marks_it(team: Team) -> None:
    token = team.table.create("reader", ("read",))
    assert eventually(lambda: status(team.two, token) == 200)
    cookie, owners = sign_in(team.two, token), sign_in(team.one, TOKEN)
    assert pages(team, cookie) == [200] * 4
    team.table.revoke("reader")
    assert eventually(lambda: pages(team, cookie) == [401] * 4)
    assert pages(team, owners) == [200] * 4
    environment = {**os.environ, "LLMC_DATA_DIR": str(team.root.parent / "operator"), "LLMC_MCP_STORE_URL": team.url}
    llmc = [sys.executable, "-c", "from llmc_mcp.cli.main import main; main()", "token", "sign-out"]
    subprocess.run(llmc, env=environment, check=True)
    assert eventually(lambda: pages(team, owners) == [401] * 4)
    assert pages(team, sign_in(team.two, TOKEN)) == [200] * 4


def test_who_reads_the_store_signs_in_as_nobody_and_who_makes_cookies_up_asks_it_nothing(team: Team) -> None:
    sign_in(team.one, TOKEN)
    ((hashed, token_hash, secret),) = team.store.query(
        "SELECT i.sha256, i.token, s.value FROM sign_ins i, secrets s WHERE s.name='sign_ins' LIMIT 1"
    )
    for forged in (hashed, token_hash, secret, f"{hashed}.{secret}", "x." + "0" * 32, "", "."):
        assert pages(team, {"cookie": f"llmc_session={forged}"}) == [401] * 4
        assert status(team.one, str(forged) or "x") == 401
    tokens = Tokens({}, team.store)
    tokens.follow()
    for made_up in ("x." + "0" * 32, "\udcff.ü"):
        assert tokens.knows(made_up)  # that is: it needs no look into the store to refuse it
    tokens.close()


def test_a_link_signs_in_once_whichever_server_it_reaches(team: Team) -> None:
    own = Principal(OWNER, frozenset(SCOPES), digest=digest(TOKEN))
    maker = Tokens({OWNER: own}, team.store)
    code = maker.login_code()
    with team.one.client("") as one, team.two.client("") as two:
        assert one.get("/login", params={"code": code[:-1] + ("0" if code[-1] != "0" else "1")}).status_code == 200
        replies = [client.get("/login", params={"code": code}).status_code for client in (two, one, two)]
        assert replies == [303, 200, 200]
    stale = maker.login_code()
    team.store.execute_alone("UPDATE sign_ins SET until = until - 601 WHERE kind = 'link'")
    assert maker.use_code(stale) is None


def test_the_rate_limit_holds_for_all_servers_and_surfaces_together(team: Team) -> None:
    token = team.table.create("counted", ("read",))
    assert statuses(team, token, 200)
    left, now = 8, "extract(epoch FROM clock_timestamp())::bigint"
    used = (300 - left) * 1000 - 500  # seconds: a call takes 1000 of a bucket of 300, and `now` is rounded
    team.store.execute_alone(f"UPDATE call_rates SET full_at = ({now} + {used}) * 1000000000 WHERE principal='counted'")
    with team.one.client(token) as one, team.two.client(token) as two:
        accept = {"accept": "application/json"}
        outcomes: list[bool] = []
        for number in range(left + 6):
            client = (one, two)[number % 2]
            if number % 3:
                outcomes.append(client.post("/tool", json=CALL).status_code == 200)
            else:
                outcomes.append(not client.post("/mcp", json=LIST, headers=accept).json()["result"]["isError"])
        assert outcomes == [True] * left + [False] * 6
        refused = two.post("/tool", json=CALL)
        assert (refused.status_code, 400 <= int(refused.headers["retry-after"]) <= 501) == (429, True)
        assert two.post("/invoke_agent", json={"user_msg": "x"}).status_code == 429
        assert one.get("/health").json()["limits"] == "shared"
        assert "llmc_limits_alone 0.0" in one.get("/metrics").text


def test_calls_at_once_are_counted_over_all_servers(team: Team) -> None:
    token = team.table.create("crowd", ("read",))
    assert statuses(team, token, 200)
    hang = {"name": "read_file", "args": endless(team.root)}
    with team.one.client(token) as one, team.two.client(token) as two, ThreadPoolExecutor(3) as pool:
        under_way = [pool.submit(client.post, "/tool", json=hang) for client in (one, two, two)]
        assert eventually(lambda: team.store.query("SELECT sum(held) FROM call_slots WHERE scope='crowd'") == [(3,)])
        assert eventually(lambda: [status(team.one, token), status(team.two, token)] == [429, 429])
        team.table.revoke("crowd")
        assert [call.result(PATIENCE).status_code for call in under_way] == [401] * 3
    assert eventually(lambda: team.store.query("SELECT * FROM call_slots WHERE scope='crowd'") == [])


def test_a_hangup_reads_tokens_again(team: Team) -> None:
    token = team.table.create("unheard", ("read",))
    assert eventually(lambda: status(team.one, token) == 200)
    with psycopg.connect(team.url, autocommit=True) as connection:  # without a word to anybody
        connection.execute("DELETE FROM tokens WHERE name='unheard'")
    assert status(team.one, token) == 200
    team.one.process.send_signal(signal.SIGHUP)
    assert eventually(lambda: status(team.one, token) == 401)


def test_the_operators_own_token_of_one_data_directory_counts_on_all(postgres: Cluster, tmp_path: Path) -> None:
    url, data = postgres.fresh(), [str(tmp_path / name) for name in ("one", "two")]
    stores = [PostgresStore(url, one) for one in data]
    issued = [issue(Auth(), "127.0.0.1", one, {}, store=store) for one, store in zip(data, stores, strict=True)]
    first = issued[0].owners or ""
    assert first != issued[1].owners
    for one in issued:
        one.tokens.follow()
        found = one.tokens.principal(first)
        assert found is not None
        assert (found.name, found.scopes) == (OWNER, frozenset(SCOPES))
    code = issued[0].tokens.login_code()
    assert issued[1].tokens.use_code(code) is not None
    second = rotate_owner(data[0], TokenTable(lambda: stores[0]))
    for one in issued:
        tokens = one.tokens
        assert eventually(lambda: tokens.principal(first) is None)  # noqa: B023 - at once
        assert tokens.principal(second) is not None
        one.tokens.close()
    for store in stores:
        store.close()


def test_without_the_database_known_tokens_count_for_a_while(
    postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres.fresh(), str(tmp_path))
    token = TokenTable(lambda: store).create("ci", ("read",))
    tokens = Tokens({OWNER: Principal(OWNER, frozenset(SCOPES), digest=digest(TOKEN))}, store)
    tokens.follow()
    postgres.stop()
    try:
        assert tokens.principal(token) is not None
        monkeypatch.setattr("llmc_mcp.web.auth._TRUSTED_S", -1.0)
        assert tokens.principal(token) is None
        assert tokens.principal(TOKEN) is not None
        monkeypatch.undo()
    finally:
        postgres.start()
    table = TokenTable(lambda: store)
    assert eventually(lambda: "ci" in [one.name for one in table.list()])
    table.revoke("ci")
    assert eventually(lambda: tokens.principal(token) is None)  # it listens again
    tokens.close()
    store.close()


def test_of_two_servers_that_make_a_token_of_one_name_one_is_refused(postgres: Cluster, tmp_path: Path) -> None:
    url, start = postgres.fresh(), threading.Barrier(4)
    roots = [tmp_path / str(number) for number in range(4)]
    for root in roots:
        root.mkdir()
    stores = [PostgresStore(url, str(tmp_path), [str(root)]) for root in roots]

    def make(store: PostgresStore) -> str:
        start.wait()
        try:
            return TokenTable(lambda: store).create("twice", ("read",))
        except InvalidArgument:
            return ""

    with ThreadPoolExecutor(4) as pool:
        (made,) = filter(None, pool.map(make, stores))
    (kept,) = TokenTable(lambda: stores[0]).list()
    assert kept.digest == digest(made)
    for store in stores:
        store.close()
