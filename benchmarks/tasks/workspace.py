"""The folder that all servers work on: a Django tree in git, a long log, a noisy test run; everywhere the same."""

import os
import shutil
import subprocess
from pathlib import Path

from ..search import django

LOG_LINES = 50_000
TEST_LINES = 5_000
FAILED = ("test_refund_is_rounded", "test_token_expires", "test_upload_of_zero_bytes")
OLD_NAME, NEW_NAME = "legacy_timeout", "request_timeout"
MANY = 30

_TEST_RUN = '''\
"""Prints what a verbose test run of a big project prints."""

failed = {failed!r}
for number in range({passed}):
    share = number * 100 // {passed}
    print(f"tests/test_module_{{number % 97:02d}}.py::test_case_{{number:04d}} PASSED [{{share:3d}}%]")
for name in failed:
    print(f"tests/test_billing.py::{{name}} FAILED")
print("=========== short test summary info ===========")
for name in failed:
    print(f"FAILED tests/test_billing.py::{{name}} - AssertionError: assert 1 == 2")
print("{nfailed} failed, {passed} passed in 93.12s")
raise SystemExit(1)
'''


class Workspace:
    """Made once per run; tasks that change something put it back before each round."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(django(), root)
        self.log = root / "server.log"
        self.log.write_text("".join(_log_line(number) for number in range(LOG_LINES)))
        _write(root / "run_tests.py", _test_run())
        self.restore_many()
        self.settings = root / "app" / "settings.py"
        self.restore_settings()
        _history(root)

    def restore_settings(self) -> None:
        lines = [f"OPTION_{number} = {number}" for number in range(120)]
        lines[60:60] = [
            "",
            "def timeout_of(request):",
            "    if request.is_slow:",
            "        return 30",
            "    return 5",
            "",
        ]
        _write(self.settings, "\n".join(lines) + "\n")

    def restore_many(self) -> None:
        for number in range(MANY):
            text = f"from app import client\n\n\ndef fetch_{number}(url):\n    return client.get(url, {OLD_NAME}=3)\n"
            _write(self.root / "app" / "jobs" / f"job_{number:02d}.py", text)

    def many_changed(self) -> bool:
        texts = [path.read_text() for path in (self.root / "app" / "jobs").glob("job_*.py")]
        return len(texts) == MANY and all(NEW_NAME in text and OLD_NAME not in text for text in texts)

    def path(self, relative: str) -> str:
        """Absolute, as the peers want it."""
        return str(self.root / relative)


def _log_line(number: int) -> str:
    level = "ERROR" if number % 997 == 0 else "INFO"
    seconds = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
    return f"2026-01-01T{seconds}Z {level} worker-{number % 8} request {number:06d} took {number * 7 % 900} ms\n"


def _test_run() -> str:
    passed = TEST_LINES - 2 * len(FAILED) - 2
    return _TEST_RUN.format(failed=FAILED, passed=passed, nfailed=len(FAILED))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _history(root: Path) -> None:
    """Everything committed, then ten small commits with fixed authors and dates."""
    for number in range(10):
        who = f"Developer {number % 3}"
        date = f"2026-01-{number + 1:02d}T12:00:00Z"
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(root.parent), "GIT_CONFIG_NOSYSTEM": "1"}
        for role in ("AUTHOR", "COMMITTER"):
            env |= {f"GIT_{role}_NAME": who, f"GIT_{role}_EMAIL": "dev@example.com", f"GIT_{role}_DATE": date}
        _write(root / "CHANGES.txt", "".join(f"change {at}\n" for at in range(number + 1)))
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", f"Change {number}"]):
            if number == 0 or command[0] != "init":
                subprocess.run(["git", *command], cwd=root, env=env, check=True, capture_output=True)
