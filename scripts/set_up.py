"""`python -m scripts.set_up LOCK_FILE`: install a lock file with pip into this environment, and show how far it is.

On a terminal one line is rewritten; elsewhere a line is printed now and then. What pip itself says is printed only
where it fails. Standard library only: nothing is installed yet.
"""

import collections
import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

_PACKAGE = re.compile(r"^[A-Za-z0-9][\w.-]*==", re.MULTILINE)
_COLLECTING = re.compile(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)")
_EVERY = 20  # packages per line where there is no terminal
_KEPT_LINES = 40  # of what pip says, for when it fails
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off"]


class Progress:
    """One line on stderr that says how far it is."""

    def __init__(self, lock: Path) -> None:
        self._total = len(_PACKAGE.findall(lock.read_text()))
        self._done, self._began = 0, time.monotonic()
        self._rewrites = sys.stderr.isatty()

    def collected(self, name: str) -> None:
        """A package is being fetched."""
        self._done += 1
        if self._rewrites:
            self._show(f"{self._done} of {self._total} packages: {name}")
        elif self._done % _EVERY == 0:
            self._show(f"{self._done} of {self._total} packages")

    def installing(self) -> None:
        """All are there, and are unpacked now."""
        self._show("installing them")

    def end(self) -> None:
        """Say how long it took."""
        self._show(f"done in {time.monotonic() - self._began:.0f} s")
        if self._rewrites:
            print(file=sys.stderr)

    def _show(self, text: str) -> None:
        if self._rewrites:
            print(f"\r\x1b[Kmake: {text}", end="", file=sys.stderr, flush=True)
        else:
            print(f"make: {text}", file=sys.stderr, flush=True)


def main(lock: Path) -> int:
    """Install; returns pip's exit code."""
    progress = Progress(lock)
    said = collections.deque[str](maxlen=_KEPT_LINES)
    command = [*_PIP, "--require-hashes", "--no-deps", "--no-compile", "-r", str(lock)]  # it names all of them
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout or ():
            said.append(line)
            if found := _COLLECTING.match(line.strip()):
                progress.collected(found[1])
            elif line.startswith("Installing collected packages"):
                progress.installing()
    if pip.returncode == 0:
        _compile()
    progress.end()
    if pip.returncode:
        print(f"make: pip failed:\n{''.join(said)}", end="", file=sys.stderr)
    return pip.returncode


def _compile() -> None:
    """What pip would do on one core. A package may hold files that no Python compiles: they are nobody's to import."""
    command = [sys.executable, "-m", "compileall", "-q", "-j", "0", sysconfig.get_path("purelib")]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
