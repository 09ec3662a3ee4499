"""Configuration files: each loads, or is a ConfigError that names the file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc_mcp.config.load import Flags, load
from llmc_mcp.config.trust import ConfigError

from . import examples

NAMES = st.sampled_from(
    [
        "mcp",
        "mcp.tools",
        "mcp.limits",
        "mcp.sandbox",
        "mcp.policy",
        "mode",
        "roots",
        "level",
        "secret_names",
        "te",
        "mcp.tools.read_timeout",
        "mcp.server.result_format",
        "te.budgets",
        '"a b"',
        "'x'",
        "é",
        "a" * 300,
        "",
        ".",
    ]
)
VALUES = st.sampled_from(
    [
        "1",
        "-1",
        "1e400",
        "nan",
        "inf",
        "0x7fffffffffffffffffff",
        "9" * 5000,
        '"x"',
        '""',
        "true",
        "[]",
        "{}",
        "[[[]]]",
        '["/"]',
        '["\\u0000"]',
        "2026-01-01",
        "1979-05-27T07:32:00Z",
        '"""\n',
        "'''",
        "[" * 300,
        "{a=" * 200,
        "\x00",
        "\\",
    ]
) | st.integers().map(str)
LINES = st.one_of(
    st.tuples(NAMES, VALUES).map(" = ".join),
    NAMES.map(lambda name: f"[{name}]"),
    NAMES.map(lambda name: f"[[{name}]]"),
    st.text(max_size=20),
)
FILES = st.lists(LINES, max_size=8).map("\n".join).map(lambda text: text.encode("utf-8", "replace")) | st.binary(
    max_size=80
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config")


@examples(400, a_second=200)
@given(content=FILES, trusted=st.booleans())
def test_e15_a_configuration_loads_or_its_mistake_names_the_file(folder: Path, content: bytes, trusted: bool) -> None:
    file = folder / "llmc.toml"
    file.write_bytes(content)
    flags = Flags(config_file=str(file)) if trusted else Flags()
    try:
        load(flags, environ={"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}, directory=str(folder))
    except ConfigError as exc:
        assert all("llmc.toml" in problem for problem in exc.problems), (content, exc.problems)  # noqa: PT017 - most of them load
