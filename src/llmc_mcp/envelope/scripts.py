"""Scripts, builds and installations: errors and tracebacks, verdicts, the last lines; what repeats is folded."""

import os
import re

from .family import FamilyPlan
from .programs import FAMILY_OF
from .salience import NEAR, NOISE, PLAIN, TITLE, VERDICT, WRONG, SalientLines

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*$")
_INTERPRETERS = frozenset(("node", "ruby", "perl", "deno", "bun"))
_NPM_VERBS = frozenset(("install", "ci", "i", "run", "run-script", "audit", "update", "build"))
_BUILD_VERBS = {
    "cargo": frozenset(("build", "check", "run", "clippy", "install", "bench", "doc", "fetch", "b", "c", "r")),
    "go": frozenset(("build", "vet", "run", "install", "generate", "get", "mod")),
    **dict.fromkeys(("npm", "pnpm"), _NPM_VERBS),
    "yarn": _NPM_VERBS | {""},
    **dict.fromkeys(("docker", "podman"), frozenset(("build", "buildx", "pull"))),
}
_RUNS_ON = frozenset(("dev", "start", "serve", "watch", "preview", "--watch", "-w"))  # until somebody stops it
_AFTER_ERROR = 6  # lines that tell more

_FRAME = re.compile(rb'\s+File "(.+)", line \d+')
_TRACEBACK = re.compile(rb"\s*Traceback \(most recent call last\)|Caused by:|.{0,40}?thread '[^']{0,100}' panicked at")
_EXCEPTION = re.compile(rb"(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning)(?::|$)")
_ERROR = re.compile(
    rb"(?i)(?:.*[\s:\[(])?(?:error|fatal|failed|failure|panic|undefined reference|cannot find|not found|no such file"
    rb"|denied|assertion|exception)\b"
)
_WARNING = re.compile(rb"(?i).{0,200}?(?:\b|[a-z])(?:warning|deprecat\w{0,12})\b")
_VERDICT = re.compile(
    rb"Ran \d+ tests? in |OK\b.{0,60}$|FAILED \(|(?:FAIL|ERROR): \w+"
    rb"|={1,80} [^=]{0,200}?\b\d{1,9} (?:passed|failed|errors?)\b"
    rb"|\s{0,40}Finished .{0,80}?target|error: could not compile|make(?:\[\d+\])?: \*\*\*|BUILD (?:SUCCESS|FAIL)"
    rb"|Successfully (?:installed|built|tagged)|added \d+ packages|found \d+ vulnerab|npm (?:ERR!|error) code"
    rb"|(?:build|compilation) (?:succeeded|failed|finished)|test result: "
)
_PROGRESS = re.compile(
    rb"\s*(?:Compiling|Checking|Downloaded|Downloading|Updating|Fetching|Collecting|Requirement already|Using cached"
    rb"|Preparing metadata|Building wheel|Created wheel|Stored in directory|Installing build|Getting requirements"
    rb"|\[ *\d+%\]|\[\d+/\d+\]|#\d+ (?:DONE|CACHED|sha256|extracting)|(?:CC|CXX|LD|AR|GEN|LINK) +|gcc |g\+\+ |cc |clang"
    rb"|reading sources\.\.\.|copying |writing output\.\.\.|[0-9a-f]{12}: [PWVDE])"
    rb"|.{0,300}?\.\.\. (?:ok|OK|skipped|DONE)\b"
)


def plan(argv: list[str]) -> FamilyPlan | None:
    """A plan for a script, a build or an installation; None for a program that waits for input."""
    program, words = os.path.basename(argv[0]), argv[1:]
    if _PYTHON.match(program):
        return _python(argv, words)
    if program in _INTERPRETERS:
        known = any(not word.startswith("-") for word in words)
    elif program in _BUILD_VERBS:
        verb = next((word for word in words if not word.startswith("-")), "")
        known = verb in _BUILD_VERBS[program] and _RUNS_ON.isdisjoint(words)
    elif program in ("pip", "pip3", "uv", "poetry"):
        known = any(word in ("install", "sync", "add", "uninstall", "lock", "wheel") for word in words)
    else:
        known = True  # programs.py names only programs that run to their end
    return _script(argv) if known else None


def _python(argv: list[str], words: list[str]) -> FamilyPlan | None:
    flags = [word for word in words if word.startswith("-")]
    if words[:2] == ["-m", "pytest"]:
        from .tests import plan as plan_tests

        tests = plan_tests(["pytest", *words[2:]])
        return tests._replace(argv=list(argv), kind="tests") if tests is not None else None
    if words[:1] == ["-m"] and FAMILY_OF.get(words[1] if len(words) > 1 else "") == "lint":
        from .lint import plan as plan_lint

        lint = plan_lint(words[1:])
        return lint._replace(argv=list(argv), kind="lint") if lint is not None else None
    if not words or "-i" in flags or words in (["-V"], ["--version"], ["-"]):
        return None  # interactive, or nothing to condense
    return _script(argv)


def _script(argv: list[str]) -> FamilyPlan:
    return FamilyPlan(list(argv), SalientLines(ScriptLines()), one_stream=True)


class ScriptLines:
    """Lines of a program that nothing is known of but how programs complain."""

    words = (
        *(b"error", b"fatal", b"fail", b"panic", b"undefined reference", b"cannot find", b"not found", b"no such file"),
        *(b"denied", b"assertion", b"exception", b"warn", b"deprecat", b"traceback", b'file "', b"caused by"),
        *(b"tests in ", b"passed", b"finished", b"***", b"success", b"test result"),
    )
    any_case = True

    def __init__(self) -> None:
        self._near = 0
        self._frames = 0
        self._errors = self._warnings = 0

    def weigh(self, line: bytes) -> int:
        self._near = max(self._near - 1, 0)
        if _VERDICT.match(line):
            self._errors += _ERROR.match(line) is not None
            return VERDICT
        if _TRACEBACK.match(line):
            self._frames, self._near = 0, _AFTER_ERROR
            return TITLE
        if (frame := _FRAME.match(line)) is not None:
            self._near = 2
            return NEAR if b"site-packages" not in frame[1] and b"/lib/python" not in frame[1] else PLAIN
        if line.startswith((b"npm warn", b"npm WARN")):
            self._warnings += 1
            return NOISE
        if _PROGRESS.match(line):
            return NOISE
        if _EXCEPTION.match(line):
            return self._complained(line)
        if _WARNING.match(line):
            self._warnings += 1
            return PLAIN
        if _ERROR.match(line):
            return self._complained(line)
        return NEAR if self._near and line[:1].isspace() else PLAIN

    def _complained(self, line: bytes) -> int:
        if b"Warning" in line[:60]:
            self._warnings += 1
            return PLAIN
        self._errors += 1
        self._near = _AFTER_ERROR
        return WRONG

    def counts(self) -> dict[str, int]:
        return {"error_lines": self._errors, "warning_lines": self._warnings}
