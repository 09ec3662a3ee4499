"""Which files of a root are walked."""

import os
from pathlib import Path

from llmc_mcp.files.ripgrep import find_ripgrep
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
