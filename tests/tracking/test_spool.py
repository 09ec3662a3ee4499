"""Contents in the spool are what they were, copied or shared with the file that they come from."""

import os
from pathlib import Path

import pytest

from llmc_mcp.tracking.spool import ContentSpool

_LARGE = 300_000


def test_content_is_shared_or_copied_and_never_changes_with_its_file(tmp_path: Path) -> None:
    spool = ContentSpool(str(tmp_path / "data"), 1 << 20)
    data = os.urandom(_LARGE)
    (tmp_path / "file").write_bytes(data)
    first = spool.add(b"small")
    with (tmp_path / "file").open("rb") as file:
        shared = spool.share(file.fileno())
    offset = spool.add(data) if shared is None else shared
    last = spool.add(b"last")
    (tmp_path / "file").write_bytes(b"other" * 1_000)
    assert first is not None
    assert offset is not None
    assert last is not None
    assert spool.read(offset, _LARGE) == data
    assert (spool.read(first, 5), spool.read(last, 4)) == (b"small", b"last")
    spool.close()


def test_what_is_shared_takes_no_blocks_of_its_own(tmp_path: Path) -> None:
    spool = ContentSpool(str(tmp_path / "data"), 64 << 20)
    (tmp_path / "file").write_bytes(os.urandom(16 << 20))
    os.sync()
    free = os.statvfs(tmp_path).f_bfree
    with (tmp_path / "file").open("rb") as file:
        if spool.share(file.fileno()) is None:
            pytest.skip("this file system has no reflinks")
    os.sync()
    assert (free - os.statvfs(tmp_path).f_bfree) * os.statvfs(tmp_path).f_bsize < 8 << 20
    spool.close()


def test_there_is_a_limit_and_half_of_it_for_what_tools_generate(tmp_path: Path) -> None:
    spool = ContentSpool(str(tmp_path / "data"), 100)
    assert spool.add(b"x" * 51, half=True) is None
    assert spool.add(b"x" * 51) == 0
    assert spool.add(b"x" * 50) is None
    with (tmp_path / "file").open("wb+") as file:
        file.truncate(_LARGE)
        assert spool.share(file.fileno()) is None
    spool.close()
