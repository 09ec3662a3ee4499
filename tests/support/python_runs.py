"""execute_code's CPython engine, run without a server around it: a level, some functions, and the outcome of a run."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator

import pytest

from llmc_mcp.errors import Timeout
from llmc_mcp.interpreters.cpython import PythonEngine, settings_for_code
from llmc_mcp.interpreters.engine import Functions, RunLimits, RunOutcome
from llmc_mcp.kernel.launcher import Launcher
from llmc_mcp.sandbox.profile import SandboxSettings

from .processes import processes_below
from .workspace import require, run_as_at

LEVELS = ("workspace", "landlock")
_MEMORY_MB = 128


class Runs:
    """An engine at one sandbox level."""

    def __init__(self, level: str, *, vouched: bool = False, **settings: object) -> None:
        require(level != "workspace" or shutil.which("bwrap") is not None, "bubblewrap")
        self.level = level
        self.launcher, self._data = Launcher(), tempfile.mkdtemp(prefix="llmc-test-")
        settings.setdefault("run_as", run_as_at(level))
        chosen = SandboxSettings(level=level, **settings)  # pyright: ignore[reportArgumentType] - real settings
        self.engine = PythonEngine(self.launcher, settings_for_code(chosen, _MEMORY_MB), self._data, vouched=vouched)

    def __call__(
        self,
        code: str,
        functions: Functions | None = None,
        *,
        seconds: float = 20.0,
        calls: int = 100,
        output_bytes: int = 1 << 16,
        check: Callable[[], None] = lambda: None,
    ) -> RunOutcome:
        """Run code; `check` is called in addition to the time limit."""
        ends = time.monotonic() + seconds

        def check_time() -> None:
            check()
            if time.monotonic() > ends:
                raise Timeout("too long")

        limits = RunLimits(seconds, _MEMORY_MB << 20, output_bytes, calls)
        return self.engine.run(code, functions or {}, limits, check_time)

    def value(self, code: str, functions: Functions | None = None) -> object:
        """The value of the last line; the run must not fail."""
        outcome = self(code, functions)
        assert outcome.failure is None, outcome
        return outcome.value

    def message(self, code: str, functions: Functions | None = None, **more: object) -> str:
        """Why a run failed."""
        outcome = self(code, functions, **more)  # pyright: ignore[reportArgumentType]
        assert outcome.failure is not None, outcome
        return outcome.failure.message

    def close(self) -> None:
        self.engine.close()
        self.launcher.close()
        shutil.rmtree(self._data)


@pytest.fixture(scope="module")
def run() -> Iterator[Runs]:
    """An engine for tests that do not depend on the level."""
    made = Runs("auto")
    yield made
    made.close()


@pytest.fixture(scope="module", params=LEVELS)
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    """An engine at each level in turn."""
    made = Runs(request.param)
    yield made
    made.close()


def interpreters(pid: int) -> set[int]:
    """Monty's own processes below a server."""
    return {one for one in processes_below(pid) if _program(one).endswith("/monty")}


def _program(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""  # it ended
