"""Which files of a root are walked, and which changes are noticed."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from llmc_mcp.files.ripgrep import find_ripgrep
from llmc_mcp.rag.build import watch
from llmc_mcp.rag.build.walk import Walk, WalkRules


def test_a_root_whose_own_name_makes_its_files_secret_has_none_to_index(tmp_path: Path) -> None:
    """The tools that read files know a secret by its whole path, so the index does too."""
    for folder in (".ssh", "plain"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "work_key").write_text("key\n")
        root = os.open(tmp_path / folder, os.O_RDONLY | os.O_DIRECTORY)
        here = os.getcwd()
        os.chdir(tmp_path / folder)
        try:
            walk = Walk(root, WalkRules(secret_names=(".ssh/*",)), os.fsdecode(find_ripgrep()), str(tmp_path))
            assert [seen.path for seen in walk.files(lambda: None)] == ([] if folder == ".ssh" else [b"work_key"])
        finally:
            os.chdir(here)
            os.close(root)


@pytest.mark.parametrize("links", [None, 1, 2])
def test_an_empty_folder_is_watched_whatever_a_file_system_counts_as_links(
    links: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zoo/cage").mkdir(parents=True)
    (tmp_path / "zoo/lion.py").write_text("")
    monkeypatch.chdir(tmp_path)
    if links is not None:
        real = os.stat

        def stat(folder: bytes) -> SimpleNamespace:
            return SimpleNamespace(st_mtime_ns=real(folder).st_mtime_ns, st_nlink=links)

        monkeypatch.setattr(watch.os, "stat", stat)
    following = watch.Watch()
    following.follow([b"zoo/lion.py"], time.time_ns())
    monkeypatch.undo()
    (tmp_path / "zoo/cage/owl.py").write_text("")
    assert following.changes()[0] == {b"zoo/cage/owl.py"}
    os.close(following.fd)
