"""Who may call over HTTP, and what: tokens, scopes, sign-in, and starts that are refused."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llmc_mcp.config.schema import Auth, Config
from llmc_mcp.errors import InvalidArgument, NotFound
from llmc_mcp.gate.catalog import Catalog
from llmc_mcp.permissions.tokens import SCOPES, digest
from llmc_mcp.store.sqlite import SqliteStore
from llmc_mcp.web.auth import Principal, Tokens, issue, kept_secret, open_table, revoke_owner, rotate_owner

from ..support import forked
from ..support.client import PATIENCE
from ..support.http_server import OPEN_HANDED, TOKEN, UNHURRIED, HttpServer, endless
from ..support.talk import eventually
from ..support.workspace import Workspace


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = Workspace(tmp_path_factory.mktemp("auth"))
    made.file("a.txt", "hello\n")
    return made


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A data directory with a token for each scope."""
    data = str(tmp_path_factory.mktemp("tokens"))
    return {"": data, **{scope: open_table(data).create(f"only-{scope}", (scope,)) for scope in SCOPES}}


@pytest.fixture(scope="module")
def served(workspace: Workspace, named: dict[str, str]) -> Iterator[HttpServer]:
    with HttpServer(workspace.root, "--mode", "classic", *OPEN_HANDED, env={"LLMC_DATA_DIR": named[""]}) as server:
        yield server


CALL = {"name": "stat", "args": {"path": "a.txt"}}


# --- the token -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"x-llmc-token": TOKEN},
        {"X-LLMC-Token": TOKEN},
        {"authorization": f"Bearer {TOKEN}"},
        {"authorization": f"bearer  {TOKEN}"},
    ],
)
def test_the_token_is_taken_from_its_header_or_as_a_bearer(served: HttpServer, headers: dict[str, str]) -> None:
    with served.client("") as client:
        assert client.post("/tool", json=CALL, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-llmc-token": ""},
        {"x-llmc-token": TOKEN[:-1]},
        {"x-llmc-token": TOKEN + "x"},
        {"x-llmc-token": TOKEN.upper()},
        {"x-llmc-token": "é" * 20},
        {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"},
        {"cookie": f"llmc_session={TOKEN}"},
        {"cookie": "llmc_session=; =;;"},
    ],
)
def test_whoever_has_not_the_right_token_gets_nothing(served: HttpServer, headers: dict[str, str]) -> None:
    raw = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    with served.client("") as client:
        for path in ("/tool", "/mcp", "/invoke_agent", "/rag/search"):
            reply = client.post(path, json=CALL, headers=raw)
            assert reply.status_code == 401
            assert reply.json()["code"] == "AUTH_FAILED"
            assert reply.headers["www-authenticate"].startswith("Bearer")
        reply = client.post(f"/tool?token={TOKEN}&X-LLMC-Token={TOKEN}", json=CALL)
        assert reply.status_code == 401


def test_a_token_is_compared_with_all_of_them_and_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import hmac

    compared: list[int] = []
    real = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append(len(one) + len(other))
        return real(one, other)

    monkeypatch.setattr("llmc_mcp.web.auth.hmac.compare_digest", counting)
    known = {name: Principal(name, frozenset(SCOPES), digest=digest(name)) for name in ("a", "b", "c")}
    tokens = Tokens(known)
    assert tokens.principal("a") == known["a"]
    assert tokens.principal("wrong" * 100) is None
    assert compared == [64] * 6


def test_on_loopback_a_token_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    first = issue(Auth(), "127.0.0.1", str(tmp_path / "data"), {})
    again = issue(Auth(), "localhost", str(tmp_path / "data"), {})
    assert first.owners == again.owners
    assert first.owners is not None
    assert len(first.owners) >= 40
    path = tmp_path / "data" / "token"
    assert first.source == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    assert issue(Auth(), "::1", str(tmp_path / "data"), {}).owners == first.owners
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_first_starts_at_once_agree_on_one_token(tmp_path: Path) -> None:
    code = "import sys; from llmc_mcp.web.auth import kept_secret; print(kept_secret(sys.argv[1], 'token'))"
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    assert len({process.communicate()[0] for process in running}) == 1
    assert os.listdir(tmp_path) == ["token"]


def test_a_data_directory_that_cannot_be_written_is_said_before_anything_listens(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InvalidArgument, match=r"token: can't be written: not a directory") as refused:
        kept_secret(str(tmp_path / "file" / "state"), "token")
    assert "LLMC_DATA_DIR" in str(refused.value.hint)


def test_a_secret_is_not_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("x" * 40)
    (tmp_path / "token").symlink_to("elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        kept_secret(str(tmp_path), "token")


# --- starts that are refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.test"])
def test_beyond_loopback_nothing_starts_without_a_token(tmp_path: Path, host: str) -> None:
    with pytest.raises(InvalidArgument, match="not a loopback address"):
        issue(Auth(), host, str(tmp_path), {})
    with pytest.raises(InvalidArgument, match="loopback addresses only"):
        issue(Auth(allow_unauthenticated=True), host, str(tmp_path), {"LLMC_MCP_TOKEN": TOKEN})
    assert issue(Auth(), host, str(tmp_path), {"LLMC_MCP_TOKEN": TOKEN}).tokens.principal(TOKEN) is not None
    assert not (tmp_path / "token").exists()


def test_the_server_itself_refuses_such_a_start_and_says_what_to_do(workspace: Workspace, tmp_path: Path) -> None:
    environment = {**os.environ, "LLMC_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "llmc_mcp.server", "--transport", "http", "--port", "0", "--host", "0.0.0.0"]
    done = subprocess.run(command, env=environment, cwd=workspace.root, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "not a loopback address" in done.stderr
    assert "hint: Set LLMC_MCP_TOKEN" in done.stderr


def test_a_short_token_is_said_to_be_short(tmp_path: Path) -> None:
    assert "guessed" in issue(Auth(), "127.0.0.1", str(tmp_path), {"LLMC_MCP_TOKEN": "short"}).notices[0]


def test_unauthenticated_is_possible_on_loopback_for_whoever_writes_it_out(workspace: Workspace) -> None:
    settings = ("--set", "auth.allow_unauthenticated=true")
    with HttpServer(workspace.root, *settings, token=None) as server, server.client("") as client:
        assert client.post("/tool", json=CALL).status_code == 200
        assert client.post("/tool", json=CALL, headers={"x-llmc-token": "wrong"}).status_code == 401
        assert client.post("/tool", json=CALL, headers={"host": "evil.test"}).status_code == 403
    assert "any program on this machine" in server.log


def test_header_and_variable_of_the_token_are_the_operators_choice(workspace: Workspace) -> None:
    settings = ("--set", "auth.header=X-Other", "--set", "auth.token_env=OTHER_TOKEN")
    other = "another-token-0123456789"
    with HttpServer(workspace.root, *settings, env={"OTHER_TOKEN": other}) as server, server.client("") as client:
        accepted = client.post("/tool", json=CALL, headers={"x-other": other})
        refused = client.post("/tool", json=CALL, headers={"x-llmc-token": TOKEN})
    assert (accepted.status_code, refused.status_code) == (200, 401)


# --- scopes --------------------------------------------------------------------------------------------------------

NEEDS = {
    "read_file": ("read", {"path": "a.txt"}),
    "linux_search_content": ("read", {"root": ".", "pattern": "hello"}),
    "linux_fs_write": ("write", {"path": "new.txt", "content": "x"}),
    "linux_fs_delete": ("write", {"path": "missing.txt"}),
    "run_cmd": ("exec", {"command": "true"}),
}


@pytest.mark.parametrize("tool", NEEDS)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_token_calls_what_its_scope_covers(served: HttpServer, named: dict[str, str], scope: str, tool: str) -> None:
    needed, arguments = NEEDS[tool]
    with served.client(named[scope]) as client:
        reply = client.post("/tool", json={"name": tool, "args": arguments})
        assert (reply.json().get("code") == "FORBIDDEN") == (scope != needed)
        inside = client.post("/tool", json={"name": "execute_code", "args": {"code": f"{tool}(**{arguments})"}})
        if scope == "read" and needed != "read":
            assert "not defined" in inside.text or "FORBIDDEN" in inside.text


def test_whatever_may_start_a_program_needs_to_exec() -> None:
    tools = Catalog(Config(mode="classic")).tools.values()
    by_scope = {scope: {tool.name for tool in tools if tool.scope == scope} for scope in SCOPES}
    assert {"run_cmd", "run_pytest", "te_run", "linux_proc_start", "linux_proc_kill", "code_check"} <= by_scope["exec"]
    changers = {"linux_mcp_run_onboarding", "code_edit", "code_rewrite"}
    assert all(name.startswith("linux_fs_") for name in by_scope["write"] - changers)
    assert {"read_file", "execute_code", "health"} <= by_scope["read"]
    assert not any(tool.mutating for tool in tools if tool.scope == "read" and tool.name != "execute_code")


def test_code_in_a_real_interpreter_needs_to_exec(workspace: Workspace, named: dict[str, str]) -> None:
    environment = {"LLMC_DATA_DIR": named[""]}
    with HttpServer(workspace.root, "--set", "code_execution.engine=python", env=environment) as server:
        for scope, expected in (("read", 403), ("exec", 200)):
            with server.client(named[scope]) as client:
                call = {"name": "execute_code", "args": {"code": "read_file('a.txt')"}}
                reply = client.post("/tool", json=call)
                assert reply.status_code == expected, reply.text
        assert "read_file" in reply.json()["error"]["message"]  # the token that may exec may not read


def test_a_client_sees_only_the_tools_that_it_may_call(served: HttpServer, named: dict[str, str]) -> None:
    def listed(scope: str) -> set[str]:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        with served.client(named[scope]) as client:
            reply = client.post("/mcp", json=message, headers={"accept": "application/json"})
        return {tool["name"] for tool in reply.json()["result"]["tools"]}

    assert {"read_file", "00_INIT", "execute_code"} <= listed("read")
    assert not {"linux_fs_write", "run_cmd"} & listed("read")
    assert "linux_fs_write" in listed("write")
    assert "run_cmd" in listed("exec")
    assert not {"read_file", "linux_fs_write"} & listed("exec")


def test_whoever_is_no_admin_sees_only_his_own_calls(served: HttpServer, named: dict[str, str]) -> None:
    served.tool("stat", path="a.txt")
    recent = {"name": "linux_mcp_recent_calls", "args": {"max_results": 1000}}
    with served.client(named["read"]) as client:
        assert all(call["tool"] != "stat" for call in client.post("/tool", json=recent).json()["calls"])
    assert any(call["tool"] == "stat" for call in served.tool("linux_mcp_recent_calls").json()["calls"])


def test_metrics_need_to_read(served: HttpServer, named: dict[str, str]) -> None:
    for scope, status in (("read", 200), ("admin", 200), ("exec", 403)):
        with served.client(named[scope]) as client:
            assert client.get("/metrics").status_code == status


def test_named_tokens_are_kept_as_hashes_and_can_be_taken_back(tmp_path: Path) -> None:
    table = open_table(str(tmp_path))
    token = table.create("ci", ("read", "exec"))
    for path in tmp_path.iterdir():
        assert token.encode() not in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    issued = issue(Auth(), "0.0.0.0", str(tmp_path), {})
    found = issued.tokens.principal(token)
    assert found is not None
    assert (found.name, found.scopes) == ("ci", frozenset({"read", "exec"}))
    for name in ("ci", "owner", "anonymous", "UPPER", "a b", "", "uid:0", "sub:x"):
        with pytest.raises(InvalidArgument):
            table.create(name, ("read",))
    with pytest.raises(InvalidArgument, match="unknown scopes"):
        table.create("other", ("root",))
    table.revoke("ci")
    assert table.list() == []
    with pytest.raises(NotFound):
        table.revoke("ci")


def test_tokens_of_a_former_version_are_moved_into_the_store(tmp_path: Path) -> None:
    former = {"ci": {"sha256": digest("the old token").hex(), "scopes": ["read"], "created": 1.0}}
    (tmp_path / "tokens.json").write_text(json.dumps(former))
    found = issue(Auth(), "0.0.0.0", str(tmp_path), {}).tokens.principal("the old token")
    assert found is not None
    assert found.name == "ci"
    assert not (tmp_path / "tokens.json").exists()


def test_llmc_token_creates_lists_rotates_and_revokes(tmp_path: Path) -> None:
    def llmc(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forked.llmc("token", *arguments, env={**os.environ, "LLMC_DATA_DIR": str(tmp_path)})

    made = llmc("create", "ci", "--scope", "read,write", "--expires", "2h", "--tools", "read_*,stat")
    assert len(made.stdout.strip()) >= 40
    listed = llmc("list").stdout
    assert "read,write" in listed
    assert "read_*,stat" in listed
    assert "expires 20" in listed
    assert made.stdout.strip() not in listed
    rotated = llmc("rotate", "ci").stdout.strip()
    assert len(rotated) >= 40
    assert rotated != made.stdout.strip()
    assert llmc("revoke", "ci").returncode == 0
    assert llmc("list").stdout == ""
    assert llmc("revoke", "ci").returncode == 2
    assert llmc("create", "ci", "--expires", "soon").returncode == 2


def test_a_token_counts_from_its_making_to_its_removal_in_a_server_that_runs(
    served: HttpServer, named: dict[str, str]
) -> None:
    table = open_table(named[""])
    token = table.create("visitor", ("read",))
    with served.client(token) as client, served.client("") as browser:
        assert client.post("/tool", json=CALL).status_code == 200
        assert browser.post("/login", data={"token": token}, headers={"origin": served.url}).status_code == 303
        assert browser.get("/metrics").status_code == 200
        again = table.rotate("visitor")
        assert again != token
        assert client.post("/tool", json=CALL).status_code == 401
        assert browser.get("/metrics").status_code == 401
        assert client.post("/tool", json=CALL, headers={"x-llmc-token": again}).status_code == 200
        table.revoke("visitor")
        assert client.post("/tool", json=CALL, headers={"x-llmc-token": again}).status_code == 401
    assert served.tool("stat", path="a.txt").status_code == 200


def test_a_call_under_way_ends_with_its_token(workspace: Workspace, tmp_path: Path) -> None:
    table = open_table(str(tmp_path))
    token = table.create("visitor", ("read",))
    with (
        HttpServer(workspace.root, *UNHURRIED, env={"LLMC_DATA_DIR": str(tmp_path)}) as server,
        ThreadPoolExecutor(1) as pool,
        server.client(token) as client,
    ):
        call = {"name": "read_file", "args": endless(workspace.root)}
        under_way = pool.submit(lambda: client.post("/tool", json=call))
        assert eventually(under_way.running)
        with server.client(token) as other:
            assert other.post("/tool", json=CALL).status_code == 200
        table.revoke("visitor")
        assert under_way.result(PATIENCE).status_code == 401


def test_the_operators_own_token_is_rotated_and_revoked_while_the_server_runs(
    workspace: Workspace, tmp_path: Path
) -> None:
    with HttpServer(workspace.root, env={"LLMC_DATA_DIR": str(tmp_path)}, token=None) as server:
        first = (tmp_path / "token").read_text().strip()

        def status(token: str) -> int:
            with server.client(token) as client:
                return client.post("/tool", json=CALL).status_code

        assert status(first) == 200
        second = rotate_owner(str(tmp_path))
        assert (status(first), status(second)) == (401, 200)
        revoke_owner(str(tmp_path))
        assert status(second) == 401


def test_a_token_lasts_as_long_as_it_says_and_calls_the_tools_that_it_names(
    served: HttpServer, named: dict[str, str]
) -> None:
    table = open_table(named[""])
    narrow = table.create("narrow", ("read", "write"), tools=("stat", "list_*"))
    expired = table.create("expired", ("read",), lasts_s=-1.0)
    with served.client(narrow) as client:
        assert client.post("/tool", json=CALL).status_code == 200
        assert client.post("/tool", json={"name": "read_file", "args": {"path": "a.txt"}}).status_code == 403
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        reply = client.post("/mcp", json=listing, headers={"accept": "application/json"})
        assert {tool["name"] for tool in reply.json()["result"]["tools"]} == {"stat", "list_dir"}
    with served.client(expired) as client:
        assert client.post("/tool", json=CALL).status_code == 401


def test_a_running_server_takes_no_named_token_from_a_store_that_it_can_not_read(tmp_path: Path) -> None:
    table = open_table(str(tmp_path))
    token = table.create("ci", ("read",))
    tokens = issue(Auth(), "127.0.0.1", str(tmp_path), {"LLMC_MCP_TOKEN": TOKEN}).tokens
    assert tokens.principal(token)
    for path in tmp_path.iterdir():
        path.unlink()
    assert tokens.principal(token) is None
    assert tokens.principal(TOKEN)


# --- browsers ------------------------------------------------------------------------------------------------------


def test_a_browser_signs_in_with_a_form_and_gets_a_cookie_that_scripts_and_sites_cannot_use(
    served: HttpServer,
) -> None:
    with served.client("") as browser:
        assert 'type="password"' in browser.get("/login").text
        reply = browser.post("/login", data={"token": TOKEN}, headers={"origin": served.url})
        assert (reply.status_code, reply.headers["location"]) == (303, "/ui")
        cookie = reply.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert TOKEN not in cookie
        assert browser.get("/docs").status_code == 200
        assert browser.post("/tool", json=CALL).status_code == 403
        assert browser.post("/tool", json=CALL, headers={"origin": served.url}).status_code == 200
        assert browser.post("/logout", json={}, headers={"origin": served.url}).status_code == 204
        assert browser.get("/docs").status_code == 401
        sent_away = browser.get("/docs", headers={"accept": "text/html"})
        assert (sent_away.status_code, sent_away.headers["location"]) == (303, "/login?next=/docs")


@pytest.mark.parametrize(
    "target", ["//evil.test", "https://evil.test", "/\\\\evil.test", "/a?b", "javascript:x", "/" * 9]
)
def test_after_signing_in_a_browser_stays_on_this_server(served: HttpServer, target: str) -> None:
    with served.client("") as browser:
        fields = {"token": TOKEN, "next": target}
        reply = browser.post("/login", data=fields, headers={"origin": served.url})
        assert reply.headers["location"] == "/ui"
        assert "evil" not in browser.get("/login", params={"next": target}).text


def test_a_login_link_works_once(tmp_path: Path) -> None:
    owner = Principal("owner", frozenset(SCOPES), digest=digest("x"))
    tokens = Tokens({"owner": owner}, SqliteStore(str(tmp_path)))
    code = tokens.login_code()
    assert tokens.use_code("guessed") is None
    assert tokens.use_code(code) == owner
    assert tokens.use_code(code) is None


def test_a_wrong_token_signs_nobody_in_and_a_form_of_another_site_is_not_looked_at(served: HttpServer) -> None:
    with served.client("") as browser:
        wrong = browser.post("/login", data={"token": "wrong"}, headers={"origin": served.url})
        foreign = browser.post("/login", data={"token": TOKEN}, headers={"origin": "http://evil.test"})
        unknown = browser.post("/login", data={"token": TOKEN})
        assert (wrong.status_code, foreign.status_code, unknown.status_code) == (401, 403, 415)
        assert not browser.cookies


def test_the_oldest_sign_ins_make_room(tmp_path: Path) -> None:
    tokens = Tokens({"a": Principal("a", frozenset(SCOPES), digest=digest("a"))}, SqliteStore(str(tmp_path)))
    principal = tokens.principal("a")
    assert principal is not None
    cookies = [tokens.sign_in(principal) for _ in range(250)]
    assert tokens.signed_in(cookies[0]) is None
    assert tokens.signed_in(cookies[-1]) == principal._replace(by_cookie=True)
    tokens.sign_out(cookies[-1])
    assert tokens.signed_in(cookies[-1]) is None
