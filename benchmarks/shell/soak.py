"""Many commands that outlive their call, and what is left of them: `python -m benchmarks.shell.soak --count 1000`.

At each level, in turn: one is stopped, one ended by its input, one by its time limit. Then servers are killed, each
with twenty commands handed over and one more on its way. Every command leaves a process of its own in the background;
what is found of them afterwards is an orphan. Nothing is asserted.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from llmc_mcp.errors import FeatureUnavailable, Timeout

from ..client import Client
from ..commands import LEVELS, Bench

_MARK = "llmc-bench-handed-over"
_SCRIPT = f"( exec -a {_MARK} sleep 100000 ) & read x"
_AT_ONCE = 20
_PATIENCE_S = 10.0  # for a launcher to notice that its server is gone


def hand_over(bench: Bench, commands: int) -> None:
    """Hand over commands one after the other, and end each in one of three ways."""
    for number in range(commands):
        way = number % 3
        limit = {"timeout": 0.5} if way == 2 else {}
        try:
            process = bench.run(_SCRIPT, yield_after=0.0, **limit).process
        except Timeout:  # it was out of time before it could be handed over
            continue
        if way == 0:
            bench.run(None, process=process, stop=True)
            continue
        text = "x\n" if way == 1 else None
        while process is not None:  # waiting for input, it is there to be asked for it
            process = bench.run(None, process=process, stdin=text, yield_after=60.0).process


def kill_servers(level: str, base: Path, commands: int) -> tuple[int, int]:
    """Kill servers in the middle of it; returns how many commands that took, and how many ran at that moment."""
    root, home = base / f"killed-{level}", base / f"home-{level}"
    for folder in (root, home):
        folder.mkdir()
    settings = {"HOME": str(home), "PATH": os.environ.get("PATH", os.defpath), "LLMC_MCP_SANDBOX_LEVEL": level}
    if level == "landlock" and os.getuid() == 0:  # it does not hold root
        settings["LLMC_MCP_SANDBOX_RUN_AS"] = "nobody"
        root.chmod(0o777)
    done = running = 0
    while done < commands:
        with Client([sys.executable, "-m", "llmc_mcp.server", "--root", str(root)], settings, base) as client:
            client.initialize()
            for _ in range(_AT_ONCE):
                client.call("run_cmd", {"command": _SCRIPT, "yield_after": 0})
            running += _marked()
            client.send_call("run_cmd", {"command": _SCRIPT, "yield_after": 0})
            os.kill(client.pid, signal.SIGKILL)
        done += _AT_ONCE + 1
    return done, running


def left(seconds: float) -> int:
    """Processes of handed over commands that are still there after some time."""
    until = time.monotonic() + seconds
    while (found := _marked()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def _marked() -> int:
    found = 0
    for entry in Path("/proc").iterdir():
        try:
            found += entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(_MARK.encode())
        except OSError:
            continue  # it ended
    return found


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def soak(level: str, base: Path, count: int, killed: int) -> None:
    """One level, as two lines of a table."""
    bench = Bench(level, base)
    try:
        hand_over(bench, 3)
        before, started = _descriptors(), time.perf_counter()
        hand_over(bench, count)
        seconds = time.perf_counter() - started
        print(f"{level:12}{'ended':22}{count:9}{left(0.0):9}{before:7} ->{_descriptors():3}{seconds:9.1f}", flush=True)
    except FeatureUnavailable as exc:
        print(f"{level}: {exc.message}")
        return
    finally:
        bench.app.close()
    started = time.perf_counter()
    done, running = kill_servers(level, base, killed)
    orphans, seconds = left(_PATIENCE_S), time.perf_counter() - started
    how = f"killed, {running} running"
    print(f"{level:12}{how:22}{done:9}{orphans:9}{'':12}{seconds:9.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000, help="of commands at each level (default: %(default)s)")
    parser.add_argument("--killed", type=int, default=210, help="of commands whose server is killed, at each level")
    parser.add_argument("--level", action="append", choices=LEVELS, help="only this one")
    asked = parser.parse_args()
    print(f"{'level':12}{'commands end':22}{'commands':>9}{'orphans':>9}{'descriptors':>12}{'seconds':>9}")
    with tempfile.TemporaryDirectory() as base:
        os.chmod(base, 0o711)
        for level in asked.level or LEVELS:
            soak(level, Path(base), asked.count, asked.killed)


if __name__ == "__main__":
    main()
