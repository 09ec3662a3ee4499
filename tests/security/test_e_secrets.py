"""E24: what looks like a credential is in no summary of a call, wherever it stands and however long the call is."""

import random

import pytest

from llmc_mcp import redaction
from llmc_mcp.config.schema import Config
from llmc_mcp.gate.catalog import Catalog
from llmc_mcp.gate.usage import summarize
from llmc_mcp.redaction import redact

SECRET = "hunter2-S3cr3t"
CONTENT = Catalog(Config()).content_arguments

# Each text, and what must be left of it beside the mask.
TEXTS: dict[str, str] = {
    f"Authorization: Bearer {SECRET}": "Authorization: Bearer",
    f"curl -H 'Authorization: Basic {SECRET}' https://example.org/x": "https://example.org/x",
    f"Authorization: Digest username=a, response={SECRET}": "Authorization",
    f"Proxy-Authorization: {SECRET}": "Proxy-Authorization",
    f"X-LLMC-Token: {SECRET}": "X-LLMC-Token",
    f"Cookie: session={SECRET}; other={SECRET}": "Cookie",
    f"AWS_SECRET_ACCESS_KEY={SECRET} aws s3 ls": "aws s3 ls",
    f"export GITHUB_TOKEN={SECRET}; make": "GITHUB_TOKEN",
    f"PGPASSWORD={SECRET} psql -h db": "psql -h db",
    f'DB_PASSWORD="{SECRET} with spaces" run': "run",
    f"DB_PASSWORD='{SECRET}\nover lines' run": "run",
    f'DB_PASSWORD="{SECRET} never closed': "DB_PASSWORD",
    f'DB_PASSWORD="a\\"{SECRET}" run': "run",
    f"DB_PASSWORD=it's-{SECRET}": "DB_PASSWORD",
    f"STRIPE_KEY={SECRET}": "STRIPE_KEY",
    f"MY_SECRET_2={SECRET}": "MY_SECRET_2",
    f'{{"api_key": "{SECRET}", "x": 1}}': "api_key",
    f"https://user:{SECRET}@example.org/path": "example.org/path",
    f"postgres://u:p@{SECRET}@db/name": "@db/name",
    f"git clone https://{SECRET}{SECRET}@example.org/r.git": "example.org/r.git",
    f"mysql -u root -p{SECRET} db": "mysql -u root",
    f"sshpass -p {SECRET} ssh host": "ssh host",
    f"docker login -u me -p {SECRET} registry": "registry",
    f"curl -u me:{SECRET} https://example.org": "https://example.org",
    f"tool --password {SECRET} --verbose": "--verbose",
    f"tool --auth-token={SECRET} --verbose": "--verbose",
    f"curl -ume:{SECRET} https://example.org": "https://example.org",
    f"PASS={SECRET} run": "run",
    f"AccountName=me;AccountKey={SECRET}==": "AccountName=me",
    f"openssl rsa -passin pass:{SECRET} -in key": "-in key",
    f"tool --private-key-passphrase {SECRET} --verbose": "--verbose",
    f"mongosh -u me -p {SECRET} db": "db",
    "ghp_abcdefghijklmnop0123": "",
    "hvs.abcdefghijklmnop0123": "",
    "SG.abcdefghijklmnop0123": "",
    "whsec_abcdefghijklmnop0123": "",
    "dop_v1_abcdefghijklmnop0123": "",
    "sk-abcdefghijklmnop0123": "",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl": "",
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----": "-----END",
}
HARMLESS = (
    "src/token_bucket.py",
    "mkdir -p a/b",
    "ssh -p 2222 host",
    "https://example.org:8080/path",
    "ssh://git@example.org/r.git",
    "PWD=/home/me make",
    "max_tokens=100",
    "key=value",
    "compass=north",
    "git push -u origin main",
    "python -u -m x",
)
PIECES = [
    *TEXTS,
    *HARMLESS,
    "token",
    "=",
    ":",
    " ",
    "'",
    '"',
    "\\",
    "\n",
    "@",
    "://",
    "--password",
    "-p",
    "mysql",
    "•••",
]


@pytest.mark.parametrize("text", TEXTS)
def test_e24_a_credential_is_blacked_out_and_the_rest_stays(text: str) -> None:
    told = redact(text)
    assert redaction.MASK in told
    assert TEXTS[text] in told
    for secret in (SECRET, "abcdefghijklmnop", "with spaces", "over lines", "never closed", "c2lnbmF0dXJl"):
        assert secret not in told


@pytest.mark.parametrize("text", HARMLESS)
def test_e24_what_is_no_credential_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "arguments",
    [
        {"password": f"x {SECRET}"},
        {"env": {"AWS_SECRET_ACCESS_KEY": SECRET, "headers": {"Authorization": f"Bearer {SECRET}"}}},
        {"command": ["env", f"PGPASSWORD=my {SECRET}", "psql"]},
        {"command": ["curl", "-H", f"Authorization: Bearer {SECRET}"]},
        {"command": ["sshpass", "-p", f"my {SECRET}", "ssh"]},
        {"command": ["tool", "--token", f"my {SECRET}"]},
        {"command": f"curl -H 'X-LLMC-Token: {SECRET}' https://u:{SECRET}@host"},
        {"edits": [{"old_text": SECRET, "new_text": SECRET}]},
        {"path": "x", "content": SECRET},
    ],
)
def test_e24_a_summary_of_a_call_holds_no_credential(arguments: dict[str, object]) -> None:
    told = summarize(arguments, CONTENT)
    assert SECRET not in told
    assert next(iter(arguments)) in told


@pytest.mark.parametrize("text", TEXTS)
def test_e24_no_cut_leaves_half_a_credential(text: str) -> None:
    limit = redaction._LOOKED_AT  # pyright: ignore[reportPrivateUsage]
    for shift in range(len(text) + 1):
        for filler in ("x " * limit, f"token={'y' * limit} "):
            before = filler[: limit - shift - 1].rstrip() + " "
            told = redact(redaction.clip(before + text + " after" * limit))
            assert not any(part in told for part in (SECRET[:8], "abcdefgh", "c2lnbmF0"))


def _made_up(seed: int) -> str:
    choose = random.Random(seed)
    return "".join(choose.choice(PIECES) for _ in range(choose.randrange(1, 12)))


@pytest.mark.parametrize("seed", range(20))
def test_e24_redacting_twice_changes_nothing_more(seed: int) -> None:
    for number in range(100):
        once = redact(_made_up(seed * 100 + number))
        assert redact(once) == once


@pytest.mark.parametrize(
    "piece", ["a", " ", "token", "token ", "token=", "token='", "://", "://a:", "@", "-p", "mysql -p", "eyJ-", "-u a:"]
)
def test_e24_a_megabyte_is_no_feast(piece: str) -> None:
    """A pattern that backtracks would take hours here; the suite's own time limit tells."""
    text = piece * ((1 << 20) // len(piece))
    assert len(redact(text)) <= 4 * len(text)
    assert len(summarize({"a": text, "b": [text] * 50, "c": {"d": {"e": [text]}}, text[:30]: text}, CONTENT)) < 500


def test_e24_a_summary_is_short_whatever_is_nested_in_it() -> None:
    nested: object = "x"
    for _ in range(200):
        nested = [nested, {"k": nested}] if isinstance(nested, str) else [nested]
    assert len(summarize({f"{number}": [nested] * 100 for number in range(100)}, CONTENT)) < 2_000
