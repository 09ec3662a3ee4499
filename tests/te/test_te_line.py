"""`te -c LINE`: a shell line as bash runs it, its output condensed by the command that it is about."""

import os
import subprocess
from pathlib import Path

import pytest

from ..support.envelope import TE, Te

TALK = "import sys\nfor n in range({count}):\n    print('out', n, 'of', {count}); sys.stdout.flush()\n"


@pytest.fixture
def te(tmp_path: Path) -> Te:
    folder = tmp_path / "work"
    folder.mkdir()
    te = Te(folder, tmp_path / "data")
    te.file("long.py", "".join(f"def function_{n}(value):\n    return value + {n}\n\n\n" for n in range(400)))
    te.file("talk.py", TALK.format(count=900))
    return te


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("true", 0),
        ("cat long.py; exit 7", 7),
        ("cat long.py | head -n 300; false", 1),
        ("cat missing.txt", 1),
        ("no_such_program_at_all", 127),
        ("python3 talk.py; kill -TERM $$", -15),
        ("for n in 1 2; do echo $n; done; exit 9", 9),
        ("if", 2),
    ],
)
def test_the_exit_code_is_that_of_bash(te: Te, line: str, code: int) -> None:
    plain = subprocess.run(["bash", "-c", line], cwd=te.folder, capture_output=True, check=False)
    assert plain.returncode == code
    assert te("-c", line).code == code


@pytest.mark.parametrize(
    "line",
    [
        "echo a; echo b >&2; echo c",
        "sed -n '5,9p' long.py",
        "nl -ba long.py | sed -n '100,140p'",
        "cat <<'EOF' > made.py\nprint('made')\nEOF\npython3 made.py",
        "for n in 1 2 3; do echo $n; done",
        'x="a  b"; echo "$x"',
        "cat long.py | wc -l",
    ],
)
def test_a_short_output_is_what_bash_prints(te: Te, line: str) -> None:
    plain = subprocess.run(["bash", "-c", line], cwd=te.folder, capture_output=True, check=False)
    done = te("-c", line)
    assert (done.out, done.err, done.code) == (plain.stdout, plain.stderr, plain.returncode)


def test_a_long_output_is_condensed_by_the_command_the_line_is_about(te: Te) -> None:
    done = te("-c", "cd . && cat long.py")
    assert done.meta["lines"] == 1_600
    assert done.meta["cmd"] == "cat"
    assert "def function_0(value):" in done.body
    handle = done.meta["handle"]
    assert te("--handle", handle, "--grep", "function_399").body.startswith("1597:def function_399")


def test_where_both_streams_are_one_their_order_is_the_commands(te: Te) -> None:
    te.file(
        "both.py",
        "import sys\nfor n in range(600):\n    print('line', n, flush=True)\n"
        "    if n == 300: print('Error: bad', file=sys.stderr)\n",
    )
    done = subprocess.run(
        [*TE, "-c", "python3 both.py"],
        cwd=te.folder,
        env=te.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    lines = done.stdout.decode().splitlines()
    at = lines.index("Error: bad")
    assert "left out" in lines[at - 1]
    assert lines[-2] == "line 599"
    assert lines[1].count('"lines":601') == 1


def test_separate_streams_stay_separate(te: Te) -> None:
    done = te("-c", "echo complaint >&2; cat long.py")
    assert done.err == b"complaint\n"
    assert b"complaint" not in done.out


def test_raw_prints_every_byte(te: Te) -> None:
    plain = subprocess.run(["cat", "long.py"], cwd=te.folder, capture_output=True, check=True)
    assert te("--raw", "-c", "cat long.py").out == plain.stdout


def test_a_session_is_shown_what_its_recent_commands_name(te: Te, tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    session = {"TE_SESSION_ID": "one", "XDG_RUNTIME_DIR": str(runtime)}
    assert "return value + 377" not in te("cat", "long.py").body
    te("grep", "-n", "function_377", "long.py", **session)
    assert "return value + 377" in te("cat", "long.py", **session).body
    assert "return value + 377" not in te("cat", "long.py", **{**session, "TE_SESSION_ID": "two"}).body
    kept = [path for path in runtime.rglob("*") if path.is_file()]
    assert len(kept) == 2
    assert all(os.stat(path).st_mode & 0o077 == 0 and path.stat().st_size < 6_000 for path in kept)


def test_a_parser_that_fails_gives_the_raw_output_and_is_counted(te: Te) -> None:
    broken = (
        "import llmc_mcp.envelope.salience as s\ndef fail(*_): raise ValueError('bug')\ns.SalientLines.show = fail\n"
        "from llmc_mcp.te.main import main; main()"
    )
    words = [TE[0], "-c", broken, "python3", "talk.py"]
    done = subprocess.run(words, cwd=te.folder, env=te.env, capture_output=True, check=False)
    assert done.stdout.splitlines()[-1] == b"out 899 of 900"
    assert len(done.stdout.splitlines()) == 900
    assert [row["fallbacks"] for row in te.stats()["commands"]] == [1]
