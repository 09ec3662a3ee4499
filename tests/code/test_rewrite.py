"""Rewriting by pattern: what the grammar matches, in every file of the language, in one change."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.errors import BadArgs, InvalidArgument, InvalidPath
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.kernel import syscalls

from ..support.gates import context, gate_on
from ..support.workspace import require

Call = Callable[..., Any]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    require(syscalls.landlock_abi() > 0, "Landlock")
    return tmp_path


@pytest.fixture
def rewrite(root: Path) -> Iterator[Call]:
    config = Config()
    config.rag.jit_context_enabled = False  # patterns need no index
    with gate_on(root, config) as gate:

        def run(pattern: str, replacement: str, language: str = "python", **more: object) -> Any:
            arguments = {"pattern": pattern, "rewrite": replacement, "language": language, **more}
            return gate.call(context(gate), "code_rewrite", arguments)

        run.gate = gate  # type: ignore[attr-defined]
        yield run


def test_code_is_matched_and_not_text_and_one_undo_takes_all_back(root: Path, rewrite: Call) -> None:
    one = "x = load( 'ü',  b)\n# load(1)\ns = 'load(2)'\ny = load(load(3))\n"
    (root / "one.py").write_text(one)
    (root / "two.py").write_text("def load(a): ...\nload(\n    4,\n)\n")
    (root / "three.js").write_text("load(5)\n")
    done = rewrite("load($$$ARGS)", "read($$$ARGS, mode)")
    assert (root / "one.py").read_text() == (
        "x = read('ü',  b, mode)\n# load(1)\ns = 'load(2)'\ny = read(load(3), mode)\n"
    )
    assert (root / "three.js").read_text() == "load(5)\n"
    assert (done.matches, done.searched, len(done.files)) == (3, 2, 2)
    gate: Gate = rewrite.gate  # type: ignore[attr-defined]
    gate.call(context(gate), "linux_fs_undo", {"undo_id": done.undo_id})
    assert (root / "one.py").read_text() == one


@pytest.mark.parametrize(
    ("language", "name", "before", "pattern", "replacement", "after"),
    [
        ("go", "a.go", "package a\n\nfunc f() { x.Old(1) }\n", "x.Old($A)", "x.New($A)", "x.New(1)"),
        ("rust", "a.rs", "fn f() { g().unwrap(); }\n", "$A.unwrap()", "$A?", "g()?;"),
        ("ts", "a.ts", "const a = b.c(1)\n", "$A.c($B)", "$A.d($B, $B)", "b.d(1, 1)"),
        ("java", "A.java", "class A { int f() { return g(1); } }\n", "g($A)", "h($A)", "return h(1);"),
        ("c", "a.c", "int f() { return g(1); }\n", "g($A)", "h($A)", "return h(1);"),
    ],
)
def test_languages(
    root: Path, rewrite: Call, language: str, name: str, before: str, pattern: str, replacement: str, after: str
) -> None:
    (root / name).write_text(before)
    rewrite(pattern, replacement, language)
    assert after in (root / name).read_text()


def test_a_dry_run_changes_nothing_and_paths_narrow_it(root: Path, rewrite: Call) -> None:
    (root / "in").mkdir()
    (root / "in/a.py").write_text("f(1)\n")
    (root / "b.py").write_text("f(1)\n")
    done = rewrite("f($A)", "g($A)", paths=["in"], dry_run=True)
    assert "--- a/in/a.py\n+++ b/in/a.py\n" in done.detail
    assert (root / "in/a.py").read_text() == (root / "b.py").read_text() == "f(1)\n"
    assert done.matches == 1


def test_nothing_off_limits_is_read_or_changed(root: Path, rewrite: Call) -> None:
    (root / ".gitignore").write_text("ignored.py\n")
    (root / ".git").mkdir()
    for name in ("ignored.py", ".git/hook.py", "ok.py"):
        (root / name).write_text("f(1)\n")
    (root / "link.py").symlink_to("/etc/passwd")
    done = rewrite("f($A)", "g($A)")
    assert done.files == [str(root / "ok.py")]
    assert (root / "ignored.py").read_text() == (root / ".git/hook.py").read_text() == "f(1)\n"
    with pytest.raises(InvalidPath):
        rewrite("f($A)", "g($A)", paths=["/etc"])


def test_mistakes_are_explained(root: Path, rewrite: Call) -> None:
    (root / "a.py").write_text("f(1)\n")
    with pytest.raises(InvalidArgument, match=r"does not bind \$B"):
        rewrite("f($A)", "g($B)")
    with pytest.raises(InvalidArgument, match="no patterns for"):
        rewrite("f", "g", "klingon")
    with pytest.raises(BadArgs):
        rewrite(" ", "g")
    assert "Nothing matches" in (rewrite("h($A)", "g($A)").notes or [""])[0]
