"""Outputs of linters, builds, containers and searches: grouped, with true counts, whatever runs the program."""

import pytest

from llmc_mcp.envelope.families import recognise
from llmc_mcp.envelope.recognition import recognise_line

from .test_condensing import condensed

MYPY = "".join(
    f"src/m{n % 20}.py:{n}: error: Incompatible types in assignment  [assignment]\n"
    f"src/m{n % 20}.py:{n}: note: Expected something else\n"
    for n in range(200)
)
PYRIGHT = "".join(
    f'  /repo/m{n % 10}.py:{n}:5 - error: Argument of type "str"\n    "str" is not "int" (reportArgumentType)\n'
    for n in range(200)
)
ESLINT = "".join(
    (f"\n/repo/c{n // 15}.js\n" if n % 15 == 0 else "") + f"  {n}:1  error  'x{n}' is never used  no-unused-vars\n"
    for n in range(300)
)
TSC = "".join(f"src/c{n // 9}.ts({n},7): error TS2322: Type 'string' is not 'number'.\n" for n in range(297))


@pytest.mark.parametrize(
    ("line", "output", "counts", "rule"),
    [
        ("mypy src", MYPY, {"findings": 200, "files": 20, "notes": 200}, "assignment 200"),
        ("python -m mypy src", MYPY, {"findings": 200, "files": 20, "notes": 200}, "assignment 200"),
        ("uv run mypy src", MYPY, {"findings": 200, "files": 20, "notes": 200}, "assignment 200"),
        ("pyright src", PYRIGHT, {"findings": 200, "files": 10}, "reportArgumentType 200"),
        ("npx eslint .", ESLINT, {"findings": 300, "files": 20}, "no-unused-vars 300"),
        ("npx --yes tsc --noEmit", TSC, {"findings": 297, "files": 33}, "TS2322 297"),
    ],
)
def test_findings_are_counted_by_file_and_rule(line: str, output: str, counts: dict[str, int], rule: str) -> None:
    done = condensed(recognise_line(line), output.encode() + b"that was all\n")
    assert done.shown.cut
    assert done.shown.counts == counts
    assert rule in done.shown.lines[0].decode()
    assert done.shown.lines[-1] == b"that was all"
    left = [line for line in done.shown.lines if b" left out" in line]
    assert left, "what is missing from a file is told below it"


NPM = "".join(f"npm warn deprecated p{n}@1.0.{n}: use q{n}\n" for n in range(200)) + "\nadded 812 packages in 12s\n"
DOCKER = (
    "".join(f"#9 {n / 10} Get:{n} debian bookworm/main amd64 package{n} [10 kB]\n" for n in range(200))
    + '#9 ERROR: process "/bin/sh -c make" did not complete successfully: exit code: 2\n------\n > [5/7] RUN make:\n'
    + "make: *** No targets specified and no makefile found.  Stop.\n"
    + "ERROR: failed to solve: process did not complete successfully: exit code: 2\n"
)
GCC = (
    "".join(f"a{n % 20}.c:{n}:9: warning: unused variable 'x{n}' [-Wunused-variable]\n" for n in range(150))
    + "b.c:3:1: error: unknown type name 'foo'\nmake: *** [Makefile:3: all] Error 1\n"
)
CARGO = (
    "".join(f"   Compiling crate{n} v1.0.{n}\n" for n in range(300))
    + "error[E0425]: cannot find value `y` in this scope\n  --> src/main.rs:9:5\n"
    + "error: could not compile `app` due to 1 previous error\n"
)
DESCRIBED = (
    "".join(f"Name: pod{n}\nNode: machine-{n}\nLabels: app=web\nStatus: Running\n" for n in range(200))
    + "Events:\n  Warning  FailedScheduling  0/3 nodes are available\n"
)


@pytest.mark.parametrize(
    ("line", "output", "counts", "shown"),
    [
        ("npm install", NPM, {"error_lines": 0, "warning_lines": 200}, ["added 812 packages"]),
        ("docker build .", DOCKER, {"error_lines": 2}, ["#9 ERROR: process", "ERROR: failed to solve", "RUN make"]),
        ("make -j4", GCC, {"error_lines": 2, "warning_lines": 150}, ["b.c:3:1: error", "make: *** [Makefile"]),
        ("gcc -Wall *.c", GCC, {"warning_lines": 150}, ["b.c:3:1: error"]),
        ("cargo build", CARGO, {"error_lines": 2}, ["error[E0425]", "--> src/main.rs:9:5", "error: could not"]),
        ("kubectl describe pods", DESCRIBED, {"error_lines": 1}, ["FailedScheduling  0/3 nodes"]),
    ],
)
def test_builds_show_what_went_wrong_and_count_it(
    line: str, output: str, counts: dict[str, int], shown: list[str]
) -> None:
    done = condensed(recognise_line(line), output.encode())
    assert done.shown.cut
    assert counts.items() <= done.shown.counts.items()
    assert done.shown.counts["lines"] == output.count("\n")
    body = done.body().decode()
    assert [text for text in shown if text not in body] == []


@pytest.mark.parametrize(
    "line",
    [
        "find . -name '*.py' | xargs grep -n needle",
        "find . -name '*.py' -print0 | xargs -0 grep -n needle | head -1000",
        "find . -name '*.py' -exec grep -n needle {} +",
    ],
)
def test_a_search_in_files_that_another_program_found_knows_their_names(line: str) -> None:
    output = "".join(f"./src/m{n // 8}.py:{n}:    value = needle{n}\n" for n in range(800))
    done = condensed(recognise_line(line), output.encode())
    assert done.shown.counts == {"matches": 800, "files": 100}
    unnumbered = "".join(f"./src/m{n // 8}.py:    value = needle{n}\n" for n in range(800))
    done = condensed(recognise_line(line.replace(" -n ", " ")), unnumbered.encode())
    assert done.shown.counts == {"matches": 800, "files": 100}


def test_one_search_per_file_has_no_names_and_is_left_alone() -> None:
    plan = recognise_line("find . -name '*.py' -exec grep -n needle {} \\;")
    assert plan is None or plan.kind != "grep"


def test_how_it_ended_is_shown_however_much_went_wrong_before() -> None:
    lines = [b"10:00 ERROR request %d failed: %s" % (n, b"because " * (n % 9)) for n in range(900)]
    done = condensed(recognise(["docker", "logs", "x"]), b"\n".join([*lines, b"10:01 INFO the server is down", b""]))
    assert done.shown.lines[-1] == b"10:01 INFO the server is down"
    assert done.shown.lines[0] == lines[0]
    assert lines[-1] in done.shown.lines
    assert done.shown.counts["error_lines"] == 900
