"""A command is parsed, explained and completed from one declaration."""

import json
import os
from pathlib import Path

import pytest

from llmc_mcp.cli import main
from llmc_mcp.cli.completion import words_after
from llmc_mcp.cli.person import for_people
from llmc_mcp.command_line import JSON, Arguments, Command, Flag, Positional, declare, server_flags
from llmc_mcp.config.load import parse_flags

from ..support.forked import llmc

parsed: list[Arguments] = []


@declare(
    "paint",
    "Paints a wall.",
    positionals=(Positional("WALL", "which wall"), Positional("COLOUR", "", ("red", "green"), required=False)),
    flags=(Flag("--coats", "how many coats", "N", default="2"), Flag("--tool", "a tool", "T", repeated=True), JSON),
    rest=Positional("NOTES", "for the painter"),
)
def paint(given: Arguments) -> int:
    parsed.append(given)
    return given.number("--coats", most=9)


shed = Command("shed", "A shed.", default="look")


@shed.verb("look", "look into it", flags=(JSON,))
def look(given: Arguments) -> int:
    return 10 + (JSON.name in given)


@shed.verb("lock", "lock it", positionals=(Positional("KEY", "a key"),))
def lock(given: Arguments) -> int:
    return len(given.positionals)


def test_words_find_their_places() -> None:
    assert paint(["--tool", "brush", "north", "--tool=roller", "red", "--coats=3", "--json", "--", "--mind", "it"]) == 3
    given = parsed.pop()
    assert given.positionals == ["north", "red"]
    assert given.all("--tool") == ["brush", "roller"]
    assert given.rest == ["--mind", "it"]
    assert "--json" in given
    assert paint(["north"]) == 2, "the default"
    assert parsed.pop().value("--tool") == ""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "WALL is missing"),
        (["north", "blue"], "no colour is called 'blue'\nhint: Known are red, green."),
        (["north", "gren"], "Did you mean green?"),
        (["north", "red", "south"], "unknown argument 'south'"),
        (["north", "--brush"], "unknown argument '--brush'"),
        (["north", "--cots", "3"], "unknown argument '--cots'\nhint: Did you mean --coats?"),
        (["north", "--cots=3"], "Did you mean --coats?"),
        (["north", "--json=yes"], "unknown argument '--json=yes'"),
        (["north", "--coats"], "--coats needs a value"),
        (["north", "--coats", "10"], "--coats takes a number from 1 to 9, not '10'"),
        (["north", "-x\x1b[2J"], "unknown argument '-x\\x1b[2J'"),
    ],
)
def test_a_wrong_command_line_is_explained(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert paint(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{paint.synopsis()}llmc: ")
    assert complaint in err.removeprefix(paint.synopsis()), "what is wrong comes last, where the eye is"


def test_the_usage_comes_before_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    paint(["north", "--brush"])
    assert capsys.readouterr().err == f"{paint.synopsis()}llmc: unknown argument '--brush'\n"


def test_a_slip_in_a_subcommand_is_corrected_where_there_is_a_default_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert shed(["lck", "gold"]) == 2
    assert capsys.readouterr().err.endswith("llmc: unknown argument 'lck'\nhint: Did you mean lock?\n")


def test_a_subcommand_is_chosen_by_its_name_or_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert [shed([]), shed(["--json"]), shed(["look"]), shed(["lock", "gold"])] == [10, 11, 10, 1]
    assert shed(["lock", "--help"]) == 0
    assert capsys.readouterr().out == shed.help()
    assert shed.synopsis() == "usage: llmc shed [look] [--json]\n       llmc shed lock KEY\n"


def test_help_describes_every_part() -> None:
    assert paint.help() == (
        "usage: llmc paint WALL [red|green] [--coats N] [--tool T]… [--json] [-- NOTES]\n\n"
        "Paints a wall.\n\n"
        "  WALL       which wall\n"
        "  --coats N  how many coats (default: 2)\n"
        "  --tool T   a tool; may be given several times\n"
        "  --json     print JSON\n"
        "  -- NOTES   for the painter\n"
    )


@pytest.mark.parametrize("name", main.COMMANDS)
def test_the_table_and_the_declarations_agree(name: str) -> None:
    command = main.find(name)
    assert command.full_name == ("llmc-mcp" if name == "serve" else f"llmc {name}")
    offered = set(words_after(["llmc", name]))
    assert {flag.name for flag in command.all_flags()} | set(command.verbs) <= offered


def test_the_server_takes_every_flag_that_is_declared_for_it() -> None:
    for flag in server_flags():
        value = flag.choices[0] if flag.choices else "a=b"
        assert parse_flags([flag.name, value])[1] == []


def test_the_graph_commands_go_through_the_gate(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "shop.py").write_text("def price():\n    return 1\n")
    (repository / "cart.py").write_text("from shop import price\n\n\ndef total():\n    return price()\n")

    def printed(*arguments: str) -> str:
        done = llmc(*arguments, cwd=repository, env={**os.environ, "LLMC_DATA_DIR": str(tmp_path / "data")})
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "cart.py:5" in printed("where-used", "price")
    assert "def price" in printed("inspect", "price")
    assert "shop.py" in printed("map")
    assert [call["tool"] for call in json.loads(printed("calls", "--json"))] == ["map", "inspect", "rag_where_used"]


def test_hints_for_agents_name_the_commands_of_people() -> None:
    hint = "Read it; force=true overrides, or force=[paths]. List changes with linux_fs_changes; else undo_id=U_1a."
    assert for_people(hint) == "Read it; --force overrides. List changes with llmc changes; else llmc undo U_1a."
