"""Searching a Django tree through the server, beside plain ripgrep with the same flags."""

import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from . import report
from .client import Client
from .servers import CACHE, RG, llmc

_DJANGO = "Django==5.2"
_PATTERNS = ["def save", "class MultiPartParserError", "no such words anywhere"]
_FLOOD = "e"
_MARK = b"\x01"  # stands between path, line number and text of a hit, and nowhere else
_ENV = {"PATH": os.defpath, "LANG": "C.UTF-8"}


def run(work: Path, quick: bool) -> str:
    tree = django()
    rounds = 5 if quick else 25
    server = llmc(tree, work)
    with server.start(tree) as client:
        version = client.initialize()["serverInfo"]["version"]
        rows = [_pattern(client, tree, pattern, rounds) for pattern in _PATTERNS]
        rows.append(_flood(client, tree, rounds))
    head = ["pattern", "hits", "llmc, median ms", "rg, median ms", "bar, ms", "bar is", ""]
    return f"{report.table(head, rows)}\n\n{report.provenance(f'llmc {version}', _rg_version(), _DJANGO)}"


def _pattern(client: Client, tree: Path, pattern: str, rounds: int) -> list[str]:
    total = _ours(client, pattern)
    ours: list[float] = []
    plain: list[float] = []
    for _ in range(rounds):
        ours.append(report.milliseconds(lambda: _ours(client, pattern)))
        plain.append(report.milliseconds(lambda: _rg(tree, pattern)))
    bar = 1.2 * report.median(plain) + 6
    return _row(f"`{pattern}`", total, ours, plain, bar, "1.2 times rg + 6 ms")


def _flood(client: Client, tree: Path, rounds: int) -> list[str]:
    """A pattern that hits everywhere: rg may stop as soon as it has printed as many hits as we counted."""
    ours: list[float] = []
    plain: list[float] = []
    total = 0
    for _ in range(rounds):
        begin = time.perf_counter()
        total = _ours(client, _FLOOD)
        ours.append((time.perf_counter() - begin) * 1000)
        plain.append(_rg_until(tree, _FLOOD, total))
    return _row(f"`{_FLOOD}` (flood)", total, ours, plain, 2 * report.median(plain), "2 times rg to as many hits")


def _row(name: str, total: int, ours: Sequence[float], plain: Sequence[float], bar: float, meaning: str) -> list[str]:
    value = report.median(ours)
    cells = [report.number(one) for one in (value, report.median(plain), bar)]
    return [name, f"{total:,}", *cells, meaning, report.verdict(value, bar)]


def _ours(client: Client, pattern: str) -> int:
    """One search; returns the hits that the reply says were counted."""
    reply = client.call("linux_search_content", {"root": ".", "pattern": pattern})
    return json.loads(reply.partition("\n")[0])["total_hits"]


def _command(pattern: str, *flags: str) -> list[str]:
    return [str(RG), "--no-config", "-n", "-i", "-C3", *flags, "-e", pattern, "--", "."]


def _rg(tree: Path, pattern: str) -> None:
    subprocess.run(_command(pattern), cwd=tree, env=_ENV, capture_output=True, check=False)


def _rg_until(tree: Path, pattern: str, hits: int) -> float:
    """Milliseconds until rg printed so many hits, however it goes on."""
    begin = time.perf_counter()
    command = _command(pattern, f"--field-match-separator=\\x{_MARK.hex()}")
    process = subprocess.Popen(command, cwd=tree, env=_ENV, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdout is not None
    marks = 0
    while marks < 2 * hits and (piece := process.stdout.read(1 << 18)):
        marks += piece.count(_MARK)
    taken = (time.perf_counter() - begin) * 1000
    process.kill()
    process.stdout.close()
    process.wait()
    return taken


def _rg_version() -> str:
    shown = subprocess.run([RG, "--version"], capture_output=True, text=True, check=True).stdout
    return " ".join(shown.split()[:2])


def django() -> Path:
    """The pinned wheel, unpacked once: the same few thousand files on every machine."""
    tree = CACHE / _DJANGO.replace("==", "-")
    if not tree.is_dir():
        CACHE.mkdir(exist_ok=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "download", "--no-deps", "--only-binary=:all:", "-d", CACHE, _DJANGO], check=True)
        wheel = next(CACHE.glob("[Dd]jango-*.whl"))
        with tempfile.TemporaryDirectory(dir=CACHE, ignore_cleanup_errors=True) as unpacking:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacking)
            if not tree.is_dir():
                with suppress(OSError):  # another process was first
                    Path(unpacking).rename(tree)
    return tree
