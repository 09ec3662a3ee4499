"""The project's tests by pytest, read from pytest's own report (JUnit XML), which it writes to a file in memory."""

import os
import re
from typing import NamedTuple
from xml.etree import ElementTree

from ..errors import FeatureUnavailable, InvalidArgument, OutputTooLarge
from .filesystem import Filesystem, Place
from .sandbox import Sandbox
from .shell import Call, Shell, ShellResult

_MAX_REPORT = 32 << 20
_MESSAGE = 300
_VENVS = (".venv", "venv")
_FAILED_AT = re.compile(r"^(\S.*?):(\d+): ", re.MULTILINE)


class Failure(NamedTuple):
    """A test that failed or could not run."""

    test: str
    file: str
    line: int
    message: str


class Outcome(NamedTuple):
    """What pytest counted."""

    passed: int
    failed: int
    errors: int
    skipped: int
    duration_s: float
    failures: list[Failure]
    handle: str | None
    warnings: list[str]


class Pytest:
    """Runs pytest in the first root with the project's own Python."""

    def __init__(self, shell: Shell, sandbox: Sandbox, files: Filesystem) -> None:
        self._shell, self._sandbox, self._files = shell, sandbox, files

    def run(self, path: str | None, args: list[str], timeout_sec: float, call: Call) -> Outcome:
        """Run the tests in `path` (all by default)."""
        report = os.memfd_create("junit")
        try:
            target = f"/proc/self/fd/{self._sandbox.level().free_fd}"
            argv = [self._python(), "-m", "pytest", "-q", "--color=no", f"--junit-xml={target}"]
            argv += ["-o", "junit_family=xunit1", *args, *self._target(path)]
            done = self._shell.run_command(argv, timeout_sec=timeout_sec, call=call, listed=False, keep=(report,))
            size = os.fstat(report).st_size
            if size > _MAX_REPORT:
                raise OutputTooLarge(f"pytest's report has {size:,} bytes", hint="Run fewer tests at a time.")
            return _outcome(os.pread(report, size, 0), done)
        finally:
            os.close(report)

    def _python(self) -> str:
        root = self._files.roots[0]
        for name in _VENVS:
            try:
                os.stat(f"{name}/bin/python", dir_fd=root.fd)
            except OSError:
                continue
            return f"./{name}/bin/python"
        return "python3"

    def _target(self, path: str | None) -> list[str]:
        if path is None:
            return []
        file, _, test = path.partition("::")
        place: Place = self._files.locate(file)
        return [place.absolute + (f"::{test}" if test else "")]


def _outcome(report: bytes, done: ShellResult) -> Outcome:
    try:
        suites = list(ElementTree.fromstring(report).iter("testsuite"))  # noqa: S314 - as above
    except ElementTree.ParseError:
        raise _no_report(done) from None
    counts = {name: sum(int(suite.get(name, 0)) for suite in suites) for name in ("failures", "errors", "skipped")}
    total = sum(int(suite.get("tests", 0)) for suite in suites)
    seconds = sum(float(suite.get("time", 0)) for suite in suites)
    failures = [failure for suite in suites for case in suite.iter("testcase") for failure in _failures(case)]
    passed = total - sum(counts.values())
    return Outcome(
        passed,
        counts["failures"],
        counts["errors"],
        counts["skipped"],
        round(seconds, 3),
        failures,
        done.handle,
        done.warnings,
    )


def _failures(case: ElementTree.Element) -> list[Failure]:
    file = case.get("file", "")
    name = case.get("name", "")
    found: list[Failure] = []
    for problem in (*case.findall("failure"), *case.findall("error")):
        line = int(case.get("line", -1)) + 1
        # The last place named in the traceback that lies in the test's own file is where it went wrong.
        places = [int(number) for where, number in _FAILED_AT.findall(problem.text or "") if where == file]
        message = (problem.get("message") or "").strip()[:_MESSAGE]
        found.append(Failure(f"{file}::{name}" if file else name, file, places[-1] if places else line, message))
    return found


def _no_report(done: ShellResult) -> Exception:
    said = (done.stderr.strip() or done.stdout.strip())[-600:]
    if "No module named pytest" in said:
        return FeatureUnavailable(
            "pytest is not installed for the project's Python",
            hint="Install it into .venv in the first root, or into the system's Python.",
        )
    return InvalidArgument(
        f"pytest ended with exit code {done.exit_code} and no report: {said}", hint=" ".join(done.warnings) or None
    )
