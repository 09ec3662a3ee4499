"""Ignore files and globs: refused or matched, never a crash; what an ignore file says stays in its folder."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc_mcp.errors import LlmcError
from llmc_mcp.files.listing import _glob_matcher  # pyright: ignore[reportPrivateUsage]
from llmc_mcp.files.ripgrep import find_ripgrep
from llmc_mcp.rag.build.walk import RAG_IGNORE, Walk, WalkRules, spell_out
from llmc_mcp.rag.query.globs import Glob

from . import examples

GLOBS = st.lists(
    st.sampled_from(["*", "**", "?", "[", "]", "[!", "[a-", "{", "}", "/", "//", ".", "..", "!", "\\", "a", "é", "\0"])
    | st.text(max_size=3),
    max_size=12,
).map("".join)
PATHS = st.lists(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), max_size=5), max_size=6
).map("/".join)


@examples(500, a_second=1_000)
@given(glob=GLOBS, path=PATHS)
def test_e20_any_glob_is_refused_or_answers(glob: str, path: str) -> None:
    for matcher in (lambda: Glob(glob).fits(path), lambda: _glob_matcher(glob)(b"/" + os.fsencode(path))):
        try:
            assert matcher() in (True, False)
        except LlmcError as exc:
            assert exc.hint  # noqa: PT017 - most of them answer


@examples(500, a_second=2_000)
@given(path=PATHS.filter(bool))
def test_e20_a_path_written_as_a_glob_is_that_path(path: str) -> None:
    written = re.sub(r"([*?[])", r"[\1]", path)
    if "/" in path and not re.search("^/|^[.]/|//|/$", path):
        assert Glob(written).fits(path)


@examples(500, a_second=2_000)
@given(
    line=st.binary(max_size=30).filter(lambda line: b"\n" not in line), folder=st.sampled_from([b"a", b"a/b", b"*!["])
)
def test_e20_a_rule_of_a_folder_speaks_of_that_folder_alone(line: bytes, folder: bytes) -> None:
    rule = spell_out(line, folder)
    prefix = b"/" + re.sub(rb"([*?\[\]\\!# ])", rb"\\\1", folder) + b"/"
    assert rule == b"" or rule.removeprefix(b"!").startswith(prefix)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("walk")
    for name in ("top.py", "inner/kept.py", "inner/deep/kept.py", "other/kept.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x = 1\n")
    return root


@examples(60, a_second=20)
@given(rules=st.lists(GLOBS.map(lambda glob: glob.replace("\n", "")), max_size=5))
def test_e20_an_ignore_file_hides_nothing_above_it(
    tree: Path, tmp_path_factory: pytest.TempPathFactory, rules: list[str]
) -> None:
    (tree / "inner" / os.fsdecode(RAG_IGNORE)).write_bytes("\n".join(rules).encode("utf-8", "replace"))
    handle = os.open(tree, os.O_PATH)
    here = os.getcwd()
    try:
        os.chdir(tree)
        walk = Walk(handle, WalkRules(), os.fsdecode(find_ripgrep()), str(tmp_path_factory.getbasetemp()))
        found = {seen.path for seen in walk.files(lambda: None)}
    finally:
        os.chdir(here)
        os.close(handle)
    assert {b"top.py", b"other/kept.py"} <= found
