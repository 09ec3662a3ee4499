"""Control groups of servers that are gone are removed; those of servers that may be alive are not."""

import os
import subprocess
import sys
from pathlib import Path

from llmc_mcp.kernel.limits import clear_leftovers, group_name


def owned_by(pid: int, folder: Path) -> Path:
    """A group with the name that the process `pid` would give it."""
    group = folder / group_name(pid)
    group.mkdir()
    return group


def test_a_group_of_a_process_that_is_gone_is_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        group = owned_by(owner.pid, tmp_path)
        clear_leftovers(str(tmp_path))
        assert group.exists(), "its owner is alive"
    clear_leftovers(str(tmp_path))
    assert not group.exists()


def test_a_group_is_removed_when_its_owner_s_pid_has_gone_to_another_process(tmp_path: Path) -> None:
    prefix, namespace, pid, started, unique = group_name(os.getpid()).split("-")
    group = tmp_path / "-".join((prefix, namespace, pid, str(int(started) - 1), unique))
    group.mkdir()
    clear_leftovers(str(tmp_path))
    assert not group.exists()


def test_a_group_from_another_pid_namespace_stays(tmp_path: Path) -> None:
    prefix, namespace, _, started, unique = group_name(os.getpid()).split("-")
    elsewhere = tmp_path / "-".join((prefix, str(int(namespace) + 1), "4194305", started, unique))
    elsewhere.mkdir()
    clear_leftovers(str(tmp_path))
    assert elsewhere.exists(), "no pid here says whether its owner is alive"


def test_a_group_whose_owner_the_name_does_not_tell_stays(tmp_path: Path) -> None:
    names = ("llmc-4194305-0a1b2c3d", "llmc-", "llmc-x-1-2-3", "other")
    for name in names:
        (tmp_path / name).mkdir()
    clear_leftovers(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted(names)
