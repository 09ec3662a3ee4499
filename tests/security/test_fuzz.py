"""Thousands of malformed calls against one server: each is answered, none breaks it, none finds a bug of ours.

The calls come from a seeded generator, so a failure is the same failure the next time; its message names the call.
"""

import json
import os
import random
from collections import Counter
from typing import Any, NamedTuple

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.gate.catalog import Catalog

from ..support.client import Client
from ..support.workspace import SECRET, Workspace
from .attack import assert_alive

CALLS = 2_000
IN_FLIGHT = 250

HOSTILE = [
    "",
    ".",
    "..",
    "/",
    "//",
    "~",
    "~/",
    "~root/x",
    "../outside/secret.txt",
    "door/secret.txt",
    "leak",
    "loop",
    "fifo",
    "sub",
    "sub/",
    "sub/file.txt",
    "sub/file.txt/",
    "sub/file.txt/..",
    "/etc/passwd",
    "/proc/self/environ",
    "/dev/stdin",
    "file:///etc/passwd",
    "\0",
    "a\0b",
    "\\x00",
    "\\xff",
    "\\x5cxff",
    "\n",
    "a\nb",
    "\r\n",
    "\x1b[2J",
    "\u202e",
    "\ufeff",
    "\uffff",
    "\U0010ffff",
    "Z\u0351\u036b" * 50,
    "%s%n%x",
    "{0.__class__}",
    "{path}",
    "${jndi:ldap://x}",
    "$(id)",
    "`id`",
    "; id",
    "--pre=x",
    "-f/etc/passwd",
    "(",
    ")",
    "[",
    "[[:alpha:]",
    "{",
    "*",
    "**/**",
    "!*",
    "(a+)+$",
    "(?P<n>a)(?P<n>b)",
    "\\",
    "\\p{Foo}",
    "(?x",
    "a{999999}",
    "x{1000}{1000}",
    ".*" * 200,
    "x" * 255,
    "x" * 256,
    "x/" * 2100,
    "é" * 5000,
    "null",
    "true",
    "0",
    "1e9",
    "h-0000000000000000",
]
THERE = [".", "sub", "sub/file.txt", "sub/binary"]
NUMBERS = [0, 1, -1, 2, 10, 2000, 2001, -2000, 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 63), 10**30]
METHODS = ["initialize", "ping", "tools/list", "tools/call", "server/discover", "resources/read", "prompts/get"]


class Case(NamedTuple):
    """A message and who must be told: its own id, nobody by name, or nobody at all."""

    message: dict[str, Any]
    told: str


class Fuzzer:
    """Makes messages that are wrong in one way or several, and some that are right."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._tools = {
            entry["name"]: entry["inputSchema"]
            for entry in Catalog(Config(mode="classic")).entries
            if entry["annotations"]["readOnlyHint"]
        }
        assert len(self._tools) >= 5

    def case(self, number: int) -> Case:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": self._call()}
        told = "id"
        match self._random.randrange(20):
            case 0:
                message["params"] = self._junk()
            case 1:
                message["method"] = self._pick(METHODS)
                message["params"] = self._pick([self._object(), {"protocolVersion": self._junk()}])
            case 2:
                message["method"] = self._pick([self._text(), self._junk()])
            case 3:
                message["params"][self._pick(["name", "arguments", "_meta", self._text()])] = self._junk()
            case 4:
                message["id"] = self._pick([None, True, 1.5, [], {}, [1]])
                told = "nobody by name"
            case 5:
                del message["id"]
                told = "nobody"
            case 6:
                del message["params"][self._pick(["name", "arguments"])]
            case 7:
                message["jsonrpc"] = self._junk()
            case _:
                pass
        if told == "nobody" and not isinstance(message["method"], str):
            told = "nobody by name"
        return Case(message, told)

    def _call(self) -> dict[str, Any]:
        name = self._pick(list(self._tools))
        if self._random.random() < 0.1:
            name = self._pick([name.upper(), name.replace("_", "."), name + "\0", self._text()])
        return {"name": name, "arguments": self._arguments(self._tools.get(name, self._tools["read_file"]))}

    def _arguments(self, schema: dict[str, Any]) -> object:
        if self._random.random() < 0.05:
            return self._junk()
        careful = self._random.random() < 0.5  # breaks no rule of the schema, so that the handlers get their share
        given: dict[str, object] = {}
        for name, spec in schema["properties"].items():
            must = careful and name in schema.get("required", [])
            if must or self._random.random() < (0.3 if careful else 0.7):
                given[name] = self._value(spec, careful)
        for name in {"path", "root"} & given.keys():
            if careful and self._random.random() < 0.5:
                given[name] = self._pick(THERE)
        if not careful and self._random.random() < 0.1:
            given[self._text()] = self._junk()
        return given

    def _value(self, spec: dict[str, Any], careful: bool) -> object:
        """Of the right type and still hostile or, one time in six for the careless, anything."""
        if not careful and self._random.random() < 0.15:
            return self._junk()
        match spec.get("type"):
            case "integer" if careful:
                return self._random.randint(spec.get("minimum", -5), spec.get("maximum", 50))
            case "integer":
                return self._pick(NUMBERS)
            case "boolean":
                return self._random.random() < 0.5
            case "array":
                return [self._value(spec.get("items", {}), careful) for _ in range(self._random.randrange(4))]
            case _:
                return self._pick(spec["enum"]) if careful and "enum" in spec else self._text()

    def _text(self) -> str:
        if self._random.random() < 0.7:
            return self._pick(HOSTILE)
        return "".join(self._character() for _ in range(self._random.randrange(1, 40)))

    def _character(self) -> str:
        code = self._pick([self._random.randrange(0x80), self._random.randrange(0x110000)])
        return "�" if 0xD800 <= code <= 0xDFFF else chr(code)

    def _junk(self, depth: int = 0) -> Any:
        kind = self._random.randrange(9 if depth < 4 else 6)
        if kind == 0:
            return None
        if kind == 1:
            return self._random.random() < 0.5
        if kind == 2:
            return self._pick(NUMBERS)
        if kind == 3:
            return self._random.uniform(-1e6, 1e300)
        if kind < 6:
            return self._text()
        if kind == 6:
            return [self._junk(depth + 1) for _ in range(self._random.randrange(5))]
        return self._object(depth + 1)

    def _object(self, depth: int = 0) -> dict[str, Any]:
        return {self._text(): self._junk(depth) for _ in range(self._random.randrange(4))}

    def _pick(self, choices: list[Any]) -> Any:
        return self._random.choice(choices)


def furnish(workspace: Workspace) -> None:
    """Something to find, and something to trip over."""
    workspace.file("sub/file.txt", "a needle\nx\n\n(id)\n")
    workspace.file("sub/binary", bytes(range(256)))
    workspace.file(".hidden", "x\n")
    (workspace.root / "door").symlink_to("../outside")
    (workspace.root / "leak").symlink_to(workspace.outside / "secret.txt")
    (workspace.root / "loop").symlink_to("loop")
    os.mkfifo(workspace.root / "fifo")


def faults(answer: dict[str, Any]) -> str:
    """What is wrong with an answer; empty when nothing is."""
    text = json.dumps(answer)
    if SECRET in text:
        return "an outside byte"
    if "Traceback" in text or 'File \\"' in text:
        return "a traceback"
    if "error" in answer:
        return "an internal error" if answer["error"]["code"] == -32603 else ""
    if "result" not in answer:
        return "neither a result nor an error"
    result: dict[str, Any] = answer["result"]
    if result.get("isError"):
        envelope = json.loads(result["content"][0]["text"])
        if envelope["code"] in ("INTERNAL", "CANCELLED"):
            return f"the code {envelope['code']}"
        if not envelope["message"] or not envelope["correlation_id"]:
            return "an incomplete error"
    return ""


@pytest.mark.parametrize("mode", ["hybrid", "classic"])
def test_e01_e08_every_malformed_call_is_answered_and_none_is_a_bug_of_ours(workspace: Workspace, mode: str) -> None:
    furnish(workspace)
    fuzzer = Fuzzer(seed=20_260 + len(mode))
    cases = [fuzzer.case(number) for number in range(CALLS)]
    answers: dict[int, dict[str, Any]] = {}
    with Client("--root", str(workspace.root), "--mode", mode, "--log-level", "error") as client:
        for start in range(0, CALLS, IN_FLIGHT):
            batch = range(start, min(start + IN_FLIGHT, CALLS))
            for number in batch:
                client.send(cases[number].message)
            for number in batch:
                if cases[number].told == "id":
                    answers[number] = client.wait(number)
        client.start("ping")
        assert_alive(client)
        lines = [json.loads(line) for line in client.raw_lines]
        assert client.close() == 0
        log = client.log
    for number, answer in answers.items():
        assert not faults(answer), f"{faults(answer)}: {json.dumps(cases[number].message)[:2000]} → {answer}"
    expected = Counter(case.told for case in cases)
    assert min(expected["id"] // 10, expected["nobody by name"], expected["nobody"]) > 20, expected
    unnamed = [line for line in lines if line.get("id") is None and "method" not in line]
    assert len(unnamed) == expected["nobody by name"]
    assert not any(faults(line) for line in unnamed)
    assert "Traceback" not in log, log
    codes = Counter(
        json.loads(answer["result"]["content"][0]["text"])["code"]
        for answer in answers.values()
        if answer.get("result", {}).get("isError")
    )
    assert {"BAD_ARGS", "INVALID_PATH", "NOT_FOUND", "UNKNOWN_TOOL", "INVALID_ARGUMENT"} <= set(codes), codes
    assert any(not answer["result"].get("isError", True) for answer in answers.values() if "result" in answer)
