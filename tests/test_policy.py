"""Names that are secret, and names that only look so."""

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.policy import name_rules

_POLICY = Config().policy
SECRETS = name_rules(_POLICY.secret_names, _POLICY.secret_exceptions)


@pytest.mark.parametrize(
    "path",
    [
        ".env", "app/.env", "app/.env.production", "certs/server.pem", "id_rsa", "home/.ssh/id_ed25519", ".netrc",
        "home/.aws/credentials", "id_rsa.bak", ".git-credentials",
    ],
)  # fmt: skip
def test_names_that_hold_secrets(path: str) -> None:
    assert SECRETS.covers(path)


@pytest.mark.parametrize(
    "path",
    [
        ".env.example", "id_rsa.pub", "src/id_utils.py", ".env/lib/site.py", "environment", "credentials",
        "pem.txt", "a/idx", "valid_name.py", "id_dir/file.txt",
    ],
)  # fmt: skip
def test_names_that_only_look_like_secrets(path: str) -> None:
    assert not SECRETS.covers(path)


def test_a_pattern_with_a_slash_is_about_the_end_of_the_path() -> None:
    rules = name_rules([".git/hooks/*"])
    assert rules.covers("/repo/.git/hooks/pre-commit")
    assert rules.covers(".git/hooks/pre-commit")
    assert not rules.covers("/repo/.git/config")
    assert not rules.covers("/repo/my.git/hooks/x")


def test_an_empty_list_covers_nothing() -> None:
    assert not name_rules([]).covers(".env")
