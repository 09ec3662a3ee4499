"""Which program a command means, how it is split, and what is kept of what it prints."""

import os
from pathlib import Path

import pytest

from llmc_mcp.commands.allowlist import Programs, programs_from
from llmc_mcp.commands.shell_syntax import split
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import BadArgs, CommandNotAllowed, NotFound, PermissionDenied

PATH = ("/usr/bin", "/bin")
EVERYWHERE = ("/",)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ls -l", ["ls", "-l"]),
        ("echo 'a b' \"c d\" e\\ f", ["echo", "a b", "c d", "e f"]),
        ("echo a;b | c && d > e $(f) `g` *", ["echo", "a;b", "|", "c", "&&", "d", ">", "e", "$(f)", "`g`", "*"]),
        (["a b", ""], ["a b", ""]),
    ],
)
def test_a_command_is_split_into_words_and_never_interpreted(command: str | list[str], words: list[str]) -> None:
    assert split(command) == words


@pytest.mark.parametrize("command", ["", "   ", [], [""], "a 'b", ["a\0b"], "''"])
def test_a_command_without_a_meaning_is_refused(command: str | list[str]) -> None:
    with pytest.raises(BadArgs):
        split(command)


def test_a_listed_name_is_found_in_the_fixed_path(tmp_path: Path) -> None:
    assert Programs(["true"], [], PATH, EVERYWHERE).find("true", str(tmp_path)) == "/usr/bin/true"


def test_other_names_of_a_listed_program_are_allowed(tmp_path: Path) -> None:
    programs = Programs(["python3"], [], PATH, EVERYWHERE)
    real = os.path.realpath("/usr/bin/python3")
    assert programs.find(real, "/") == real
    (tmp_path / "py").symlink_to(real)
    assert programs.find("./py", str(tmp_path)) == str(tmp_path / "py")


def test_a_listed_name_means_every_program_of_that_name_in_the_path(tmp_path: Path) -> None:
    first, second = tmp_path / "toolchain", tmp_path / "system"
    for folder in (first, second):
        folder.mkdir()
        (folder / "tool").write_bytes(b"")
        (folder / "tool").chmod(0o755)
    path = [str(first), str(second)]
    programs = Programs(["tool"], [], path, EVERYWHERE)
    assert programs.find("tool", "/") == str(first / "tool")
    assert programs.find(str(second / "tool"), "/") == str(second / "tool")
    with pytest.raises(CommandNotAllowed):
        Programs([str(first / "tool")], ["tool"], path, EVERYWHERE).find(str(second / "tool"), "/")
    with pytest.raises(CommandNotAllowed):
        Programs([str(first / "tool")], [], path, EVERYWHERE).find(str(second / "tool"), "/")


def test_python_means_python3_where_there_is_no_python(tmp_path: Path) -> None:
    for name in ("python3",):
        (tmp_path / name).symlink_to("/usr/bin/true")
    assert Programs(["python3"], [], [str(tmp_path)], EVERYWHERE).find("python", "/") == str(tmp_path / "python3")


def test_what_is_not_listed_is_refused_with_the_setting(tmp_path: Path) -> None:
    with pytest.raises(CommandNotAllowed) as refused:
        Programs(["true"], [], PATH, EVERYWHERE).find("false", str(tmp_path))
    assert "run_cmd_allowlist" in str(refused.value.hint)


def test_an_unsafe_program_is_refused_under_all_its_names() -> None:
    config = Config()
    config.tools.run_cmd_allowlist = ("python3", "true")
    config.linux_ops.commands.unsafe_binaries = ("python3",)
    with pytest.raises(CommandNotAllowed):
        programs_from(config, ()).find(os.path.realpath("/usr/bin/python3"), "/")
    assert programs_from(config, ()).find("true", "/")
    config.linux_ops.commands.allow_unsafe = True
    assert programs_from(config, ()).find("python3", "/")


def test_more_binaries_may_be_named_in_a_section_of_their_own() -> None:
    config = Config()
    config.tools.run_cmd_allowlist = ("true",)
    config.linux_ops.commands.allowed_binaries = ("false",)
    assert programs_from(config, ()).find("false", "/").endswith("/false")


def test_a_script_is_allowed_where_its_interpreter_is(tmp_path: Path) -> None:
    for name, line in (("a", "#!/bin/sh"), ("b", "#!/usr/bin/env sh"), ("c", "#!/usr/bin/env -S sh -e")):
        (tmp_path / name).write_text(f"{line}\necho\n")
        (tmp_path / name).chmod(0o755)
        assert Programs(["sh"], [], PATH, EVERYWHERE).find(f"./{name}", str(tmp_path)) == str(tmp_path / name)
        with pytest.raises(CommandNotAllowed):
            Programs(["true"], [], PATH, EVERYWHERE).find(f"./{name}", str(tmp_path))


def test_a_binary_of_the_project_needs_a_listed_program_and_the_hint_says_which(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_bytes(Path("/usr/bin/true").read_bytes())
    own.chmod(0o755)
    with pytest.raises(CommandNotAllowed) as refused:
        Programs(["true", "bash"], [], PATH, EVERYWHERE).find("./own", str(tmp_path))
    assert f"llmc allow program {tmp_path}/own" in str(refused.value.hint)


def test_what_is_missing_or_not_executable_is_said_so(tmp_path: Path) -> None:
    programs = Programs(["true"], [], PATH, EVERYWHERE)
    (tmp_path / "plain").write_text("x")
    with pytest.raises(NotFound):
        programs.find("no-such-program", str(tmp_path))
    with pytest.raises(PermissionDenied):
        programs.find("./plain", str(tmp_path))
    with pytest.raises(PermissionDenied):
        programs.find("/usr", str(tmp_path))


def test_a_program_installed_later_is_found(tmp_path: Path) -> None:
    programs = Programs(["tool"], [], [str(tmp_path)], EVERYWHERE)
    with pytest.raises(NotFound):
        programs.find("tool", "/")
    (tmp_path / "tool").write_bytes(Path("/usr/bin/true").read_bytes())
    (tmp_path / "tool").chmod(0o755)
    assert programs.find("tool", "/") == str(tmp_path / "tool")
