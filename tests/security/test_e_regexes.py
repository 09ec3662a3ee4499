"""E20, C23: no text takes more time than its length; counted in seconds of CPU that a child may use, not by a clock."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from llmc_mcp.changes import diff_parse, edit, near_miss
from llmc_mcp.commands.terminal import Screen
from llmc_mcp.envelope.families import Envelope, recognise
from llmc_mcp.envelope.family import Budget
from llmc_mcp.errors import LlmcError
from llmc_mcp.files import names
from llmc_mcp.files.listing import _glob_matcher  # pyright: ignore[reportPrivateUsage]
from llmc_mcp.gate.render import neutral
from llmc_mcp.rag.parse import doc, words
from llmc_mcp.rag.parse.question import question
from llmc_mcp.rag.query.globs import Glob

from ..support.client import Client
from ..support.workspace import Workspace
from . import regexes
from .attack import assert_alive

LENGTH = 200_000
CPU_SECONDS = 5  # linear time needs less than one of them; quadratic time hours

FIELDS = ("rule.host.lower()", "rule.program", "rule.subject", "rule.token", "rule.tool")
# What expressions are put together from while the program runs. None of it is a pattern of a caller.
BUILT = {
    ("policy.py", "f'/(?:{alternatives})$' if alternatives else '(?!)'"),  # the operator's globs
    ("rag/query/bootload.py", "f'^{name}\\\\s*:'"),  # three fixed words
    ("rag/query/globs.py", "fnmatch.translate(part)"),  # a glob of at most 500 characters, name by name
    ("rag/query/questions.py", "f'(?<![\\\\w$]){re.escape(symbol.name)}(?![\\\\w$])'"),  # a literal
    ("rag/parse/scan.py", "token"),  # from tables of the module
    ("rag/parse/scan.py", "'\\\\s*' + dot"),
    ("rag/parse/detect.py", "language.shebang.encode()"),
    ("files/listing.py", "fnmatch.translate(f'*/{text}').encode()"),  # a glob of at most 500 characters
    ("files/listing.py", "fnmatch.translate(text).encode()"),
    ("envelope/names.py", "PATTERN.encode()"),  # a constant
    ("code/families.py", "f'\\\\b{re.escape(own.name)}\\\\s*[(<]'"),  # a literal
    ("code/families.py", "b'\\\\bfn\\\\s+%s\\\\b' % re.escape(self._name.encode())"),
    ("envelope/grep.py", "path + (b'(?P<number>\\\\d+):' if self.numbered else b'(?P<number>)')"),  # two constants
    ("envelope/grep.py", "b'[:-]\\\\d+[:-]' if self.numbered else b':'"),
    (
        "envelope/grep.py",
        "fnmatch.translate(os.fsdecode(_BRACES.sub(b'*', path) + folder)).encode()",
    ),  # a word of a command
    ("cli/update.py", "f'{_NAME} \\\\(([^)]+)\\\\)'"),  # a constant
    *(("permissions/rules.py", f"name_regex({field})") for field in FIELDS),  # by fnmatch.translate
    ("permissions/rules.py", "path_regex(rule.path, roots)"),  # a `*` has one way, and there are few `**`
    ("rag/parse/names.py", "b'(?<![%s])%s(?![%s])' % (_WORD, re.escape(name), _WORD)"),  # a literal
    ("rag/parse/names.py", "b'\\\\b(?:struct|union|enum)\\\\s+%s$' % re.escape(name)"),
    ("store/postgres.py", "pattern"),  # of a table of the module, on the schema
    ("tracking/generated.py", "'|'.join((fnmatch.translate(one) for one in patterns)) or _NEVER"),
}


# Modules that put theirs together from constants of their own alone; their tests show how long they take.
OF_CONSTANTS = {"redaction.py"}


def test_e20_no_expression_is_made_of_a_callers_pattern() -> None:
    assert {tuple(one) for one in regexes.expressions()[1] if one.where not in OF_CONSTANTS} == BUILT


@pytest.mark.timeout(600)
def test_e20_every_expression_takes_time_in_proportion_to_its_text() -> None:
    done = subprocess.run(
        [sys.executable, "-m", regexes.__name__],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""


def test_e20_a_pattern_that_explodes_is_greps_business_alone(server: Client, workspace: Workspace) -> None:
    workspace.file("a.py", "def " + "a" * 50 + "!\n")
    answer = server.call("te_run", command=["grep", "-rnE", "(a+)+$|def", "."])
    assert "def aaaa" in answer.body
    assert_alive(server)


def slow_ones(work: Callable[[str], object], texts: dict[str, str], seconds: int = CPU_SECONDS) -> list[str]:
    """The texts that the work does not get through with the CPU time it is given for each; by name."""
    slow: list[str] = []
    left = list(texts)
    while left:
        done = _got_through(work, [texts[name] for name in left], seconds)
        slow += left[done : done + 1]
        left = left[done + 1 :]
    return slow


def _got_through(work: Callable[[str], object], texts: list[str], seconds: int) -> int:
    """How many texts a child gets through, one after the other; a fork for each would cost more than the work."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for text in texts:
                used = int(time.process_time())
                resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, resource.RLIM_INFINITY))
                try:
                    work(text)
                except LlmcError:
                    pass  # refused is done, too
                os.write(writing, b".")
        finally:
            os._exit(0)  # a child of a test must not go on as the test
    os.close(writing)
    with open(reading, "rb") as pipe:
        done = len(pipe.read())
    os.waitpid(pid, 0)
    return done


def repeated(text: str) -> str:
    return text * (LENGTH // len(text))


FLOODS = {
    "letters": repeated("a"),
    "titles that never end": repeated("\x1b]"),
    "a title that never ends": "\x1b]" + repeated("0"),
    "device strings": repeated("\x1bPa"),
    "colours that never end": repeated("\x1b["),
    "a colour that never ends": "\x1b[" + repeated("1;"),
    "escapes": repeated("\x1b"),
    "backspaces": "x" * (LENGTH // 2) + "\b" * (LENGTH // 2),
    "backspaces between others": "x" * (LENGTH // 2) + "\b\0" * (LENGTH // 4),
    "carriage returns": repeated("\r"),
    "carriage returns and letters": repeated("a\r"),
    "brackets": "[" * (LENGTH // 2) + "]" * (LENGTH // 2),
    "angles": "<" * (LENGTH // 2) + ">" * (LENGTH // 2),
    "digits": repeated("1"),
    "spaces": repeated(" "),
    "empty lines": repeated("\n"),
    "lines of spaces": repeated(" \n"),
    "slashes": repeated("/"),
    "folders": repeated("a/"),
    "deep folders": "".join(f"{'a/' * 5_000}{number}\n" for number in range(LENGTH // 10_000)),
    "files of a diff": repeated("diff --git a/x b/x\n"),
    "a diff's names": "diff --git " + repeated("a/b "),
    "quoted names": 'diff --git "a/' + repeated('" b/ '),
    "hunks": "--- a/x\n+++ b/x\n" + repeated("@@ -1 +1 @@\n-a\n+b\n"),
    "a report's elements": repeated('<testcase name="a"><failure message="'),
    "a report's sections": repeated("=== a ==="),
    "failures": "=== FAILURES ===\n" + repeated("___ a ___ "),
    "hits": repeated("a\x001:def a"),
    "stars": repeated("*"),
    "quotes": repeated('"'),
    "backslashes": repeated("\\"),
    "combining characters": repeated("e\u0301"),
    "an assignment": repeated("a = "),
    "definitions": repeated("export "),
}


def enriched(*argv: str) -> Callable[[str], object]:
    def work(text: str) -> None:
        plan = recognise(list(argv))
        assert plan is not None
        envelope = Envelope(plan, lambda: None)
        data = text.encode()
        for at in range(0, len(data), 1 << 16):
            envelope.feed(data[at : at + (1 << 16)])
        for budget in (Budget(2_000), Budget(200)):
            envelope.finish(budget)

    return work


def edited_with_both_ends(text: str) -> None:
    data = (text + "\r\n" + text + "\n").encode("utf-8", "replace")
    edit.apply(data, [edit.TextEdit(text[: LENGTH // 2] + "\n!", "x", 1)])


WORK: dict[str, Callable[[str], object]] = {
    "a terminal": lambda text: Screen().take(text.encode(), final=True),
    "a shown text": neutral,
    "a name": lambda text: names.parse(names.show(text.encode())),
    "grep": enriched("grep", "-rE", "(a+)+$", "."),
    "rg": enriched("rg", "a"),
    "cat code": enriched("cat", "a.py"),
    "cat a document": enriched("cat", "a.md"),
    "cat a log": enriched("cat", "a.log"),
    "find": enriched("find", "."),
    "ls": enriched("ls", "-R"),
    "git log": enriched("git", "log"),
    "git diff": enriched("git", "diff"),
    "git status": enriched("git", "status"),
    "pytest": enriched("pytest"),
    "cargo": enriched("cargo", "test"),
    "go": enriched("go", "test"),
    "npm": enriched("npm", "test"),
    "a diff": diff_parse.parse,
    "words": words.take_apart,
    "a question": question,
    "a docstring": lambda text: doc.doc_of("python", text),
    "a comment": doc.comment_text,
    "a path under a glob": lambda text: Glob("**/*a*a*a*b").fits(text),
    "a path under a name's glob": lambda text: _glob_matcher("*a*a*a*b/*c")(text.encode()),
    "an edit": edited_with_both_ends,
    "an edit that misses": lambda text: near_miss.explain(text, "x" + text[: LENGTH // 4] + "y"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", WORK)
def test_e20_c23_no_flood_takes_more_time_than_its_length(name: str) -> None:
    assert slow_ones(WORK[name], FLOODS) == []


def test_a_text_that_takes_too_long_or_fails_is_named() -> None:
    def work(text: str) -> None:
        if text == "fails":
            raise ValueError(text)
        while text == "loops":
            pass

    texts = {"first": "", "one": "loops", "then": "", "two": "fails", "last": ""}
    assert slow_ones(work, texts, 1) == ["one", "two"]
