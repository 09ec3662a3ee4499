"""What compilers and type checkers say about a checkout, and which renames are to blame for what is new."""

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_PLACE = re.compile(r"^\s*(?:vet: )?(?:\./|/)?[^\s:(]+(?::\d+(?::\d+)?|\(\d+,\d+\))\s*:?\s*")
_MORE = re.compile(r"^\s{2,}(?!from )[^\s^].*")
_SUMMARY = re.compile(r"note: |: In ")


class Repository(NamedTuple):
    """A repository whose definitions are renamed: what of it is copied, and the command that judges it."""

    name: str
    language: str
    judge: str
    parts: tuple[str, ...] = ()

    def unpack(self, checkouts: Path, target: Path) -> None:
        """Copy the files of its newest commit."""
        target.mkdir(parents=True)
        words = ["git", "-C", str(checkouts / self.name.replace("/", "__")), "archive", "HEAD", *self.parts]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", str(target)], stdin=archive.stdout, check=True)
        if archive.returncode:
            raise subprocess.CalledProcessError(archive.returncode, words)


class Judge(NamedTuple):
    """Runs the command of a repository."""

    repository: Repository
    folder: Path
    env: Mapping[str, str]

    def said(self, renamed: Mapping[str, str]) -> Counter[str]:
        """Each finding without its place, which moves, and with the old names for the new ones."""
        env = {**os.environ, "LC_ALL": "C.UTF-8", **self.env}
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        words = ["sh", "-c", self.repository.judge]
        done = subprocess.run(
            words, cwd=self.folder, env=env, capture_output=True, text=True, errors="replace", check=False
        )
        lines = (done.stdout + done.stderr).replace(str(self.folder), ".").splitlines()
        names = re.compile(rf"(?<![\w$])(?:{'|'.join(map(re.escape, renamed))})(?![\w$])") if renamed else None
        found = Counter[str]()
        for one in _findings(lines):
            found[names.sub(lambda match: renamed[match[0]], one) if names else one] += 1
        return found


def _findings(lines: Iterable[str]) -> Iterable[str]:
    """The lines that begin with a place, each with those that explain it."""
    block: list[str] = []
    for line in lines:
        place = _PLACE.match(line)
        if place is not None and not _SUMMARY.search(line):
            if block:
                yield " ".join(block)
            block = [line[place.end() :].strip()]
        elif block and _MORE.match(line):
            block.append(line.strip())
    if block:
        yield " ".join(block)


def blame(new: Counter[str], names: Mapping[str, str]) -> dict[str, list[str]]:
    """Findings by the symbol, given by its old name, that they mention; `?` for those that mention none."""
    blamed: dict[str, list[str]] = {}
    for line in new:
        guilty = [symbol for old, symbol in names.items() if old in set(re.findall(r"[\w$]+", line))]
        for symbol in guilty or ["?"]:
            blamed.setdefault(symbol, []).append(line)
    return blamed


def repositories(wanted: list[str]) -> list[Repository]:
    """Those of `repositories.toml`, or only the wanted ones."""
    rows = tomllib.loads(Path(__file__).with_name("repositories.toml").read_text())["repository"]
    every = [Repository(row["name"], row["language"], row["judge"], tuple(row.get("parts", ()))) for row in rows]
    return [one for one in every if not wanted or one.name in wanted or one.name.partition("/")[2] in wanted]
