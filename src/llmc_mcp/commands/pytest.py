"""Run the project's tests with pytest and read its report (JUnit XML), which it writes to a file in memory."""

import os
import resource
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ..changes.commands import CommandChanges
from ..errors import FeatureUnavailable, InvalidArgument, LlmcError, OutputTooLarge
from ..files.filesystem import Filesystem, Place, Root
from ..kernel import confine, syscalls
from ..kernel.child import Child
from ..kernel.landlock import ruleset
from ..kernel.launcher import Launcher
from ..sandbox.sandbox import Sandbox
from .junit import MAX_ANSWER, MAX_REPORT
from .runner import CommandCall, CommandResult, CommandRunner
from .shell_syntax import CommandLine

_SHOWN = 600
_READER_BYTES = 256 << 20
_READER_SECONDS = 10  # of CPU time
_VENVS = (".venv", "venv")


class FailedTest(NamedTuple):
    """A test that failed or could not run."""

    test: str
    file: str
    line: int
    message: str


class _Answer(msgspec.Struct):
    """What the process that parses a report returns."""

    tests: int = 0
    failures: int = 0
    errors: int = 0
    skipped: int = 0
    seconds: float = 0.0
    found: list[FailedTest] = []
    missing: bool = False
    refused: str = ""


class PytestOutcome(NamedTuple):
    """The results of a pytest run."""

    passed: int
    failed: int
    errors: int
    skipped: int
    duration_s: float
    failures: list[FailedTest]
    handle: str | None
    warnings: list[str]
    changes: CommandChanges


class PytestRunner:
    """Runs pytest in the project with the project's own Python."""

    def __init__(
        self, launcher: Launcher, shell: CommandRunner, sandbox: Sandbox, files: Filesystem, project: Root
    ) -> None:
        self._launcher, self._shell, self._sandbox, self._files = launcher, shell, sandbox, files
        self._project = project

    def run(self, path: str | None, args: list[str], timeout_sec: float, call: CommandCall) -> PytestOutcome:
        """Run the tests in `path` (all by default)."""
        report = os.memfd_create("junit")
        try:
            level = self._sandbox.level()
            target = f"/proc/self/fd/{level.free_fd}"
            argv = [self._python(), "-m", "pytest", "-q", "--color=no", f"--junit-xml={target}"]
            argv += ["-o", "junit_family=xunit1", *args, *self._target(path)]
            done = self._shell.run_command(
                CommandLine(argv),
                cwd=self._project.shown,
                timeout_sec=timeout_sec,
                call=call,
                listed=False,
                keep=(report,),
                level=level,
            )
            size = os.fstat(report).st_size
            if size > MAX_REPORT:
                raise OutputTooLarge(f"pytest's report has {size:,} bytes; {_last_output(done)}", hint=_where(done))
            return _outcome(self._read(report, call.check), done)
        finally:
            os.close(report)

    def _read(self, report: int, check: Callable[[], None]) -> _Answer:
        """Parse the report in a confined process, which can access the report and nothing else."""
        limits = [(resource.RLIMIT_AS, _READER_BYTES), (resource.RLIMIT_CPU, _READER_SECONDS)]
        opened = [os.open("/", os.O_PATH | os.O_CLOEXEC)]
        try:
            plan = confine.plan(4, *limits)
            if syscalls.landlock_abi():
                opened.append(ruleset(confine.needed(b"/usr/lib")))
            else:
                del plan["ruleset"]
            argv = confine.command("llmc_mcp.commands.junit")
            child = Child(
                self._launcher, argv, cwd=opened[0], env={}, plan=plan, more_fds=tuple(opened[1:]), stdin=report
            )
            with child:
                return _answer(child, check)
        finally:
            for fd in opened:
                os.close(fd)

    def _python(self) -> str:
        for name in _VENVS:
            try:
                os.stat(f"{name}/bin/python", dir_fd=self._project.fd)
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


def _answer(child: Child, check: Callable[[], None]) -> _Answer:
    answer = bytearray()
    for piece in child.output(check):
        answer += piece
        if len(answer) > MAX_ANSWER:
            return _Answer(refused="it contains too much")
    try:
        return msgspec.json.decode(answer, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Answer(refused="it takes too much time or memory")


def _outcome(report: _Answer, done: CommandResult) -> PytestOutcome:
    if report.missing:
        raise _no_report(done)
    if report.refused:
        raise InvalidArgument(
            f"pytest's report was not read: {report.refused}; exit code {done.exit_code}; {_last_output(done)}",
            hint=_where(done),
        )
    failed = report.failures + report.errors + report.skipped
    return PytestOutcome(
        max(report.tests - failed, 0),
        report.failures,
        report.errors,
        report.skipped,
        round(report.seconds, 3),
        report.found,
        done.handle,
        done.warnings,
        done.changes,
    )


def _no_report(done: CommandResult) -> LlmcError:
    output = _last_output(done)
    if "No module named pytest" in output:
        return FeatureUnavailable(
            "pytest is not installed for the project's Python",
            hint="Install it into .venv in the project, or into the system's Python.",
        )
    return InvalidArgument(
        f"pytest ended with exit code {done.exit_code} and no report: {output}", hint=" ".join(done.warnings) or None
    )


def _last_output(done: CommandResult) -> str:
    return (done.stderr.strip() or done.stdout.strip())[-_SHOWN:]


def _where(done: CommandResult) -> str:
    whole = f"Full output: linux_handle_read(handle={done.handle!r}). " if done.handle else ""
    return " ".join([f"{whole}Run fewer tests at a time.", *done.warnings])
