"""A server's command engine as a process of its own: one JSON order a line in, one JSON answer a line out.

The attack matrix runs it as root and as an ordinary user, at each level; no transport is in the way.
"""

import json
import os
import sys
from typing import Any

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.errors import LlmcError
from llmc_mcp.session import Session
from llmc_mcp.tools.exec import CommandOutput, run_cmd


def run_to_its_end(app: App, session: Session, order: dict[str, Any]) -> CommandOutput:
    """Run a command without handing it over."""
    if name := order.pop("session", ""):
        session = Session(principal="test", session_id=name)
    waits: dict[str, Any] = {"stdin": "", "yield_after": 600.0, **order}
    return run_cmd(Context(app, session, correlation_id="test"), **waits)


def main() -> None:
    """Serve until stdin ends."""
    setup = json.loads(sys.argv[1])
    config = Config()
    config.sandbox.level = setup["level"]
    for name, value in setup.get("sandbox", {}).items():
        setattr(config.sandbox, name, value)
    for name, value in setup.get("tools", {}).items():
        setattr(config.tools, name, value)
    app = App(config, setup["roots"], setup["data"], trusted_files=setup.get("trusted_files", ()))
    session = Session(principal="test", session_id="test")
    print(json.dumps({"pid": os.getpid(), "uid": os.getuid()}), flush=True)
    for line in sys.stdin:
        try:
            done = run_to_its_end(app, session, json.loads(line))
        except LlmcError as exc:
            answer = {"error": exc.code, "message": exc.message, "hint": exc.hint}
        else:
            data, meta = done.data, done.meta
            answer = {"stdout": data.stdout, "stderr": data.stderr, "exit_code": data.exit_code}
            answer |= {"sandbox": meta.sandbox, "warnings": meta.warnings or [], "handle": meta.handle}
        print(json.dumps(answer), flush=True)
    app.close()


if __name__ == "__main__":
    main()
