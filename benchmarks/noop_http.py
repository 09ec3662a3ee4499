"""`python -m benchmarks.noop_http fastapi|sdk`: servers that do nothing, as the HTTP stack's own price of a call.

`fastapi` is a POST route as its tutorial writes one: a body model and a plain function, which FastAPI runs in a thread.
`sdk` is the MCP SDK's low-level server with one tool, stateless and with JSON replies. Neither has authentication,
limits, logs, metrics or a tool that looks at a file.
"""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, TextContent
from pydantic import BaseModel


class Call(BaseModel):
    session_id: str = "http"
    name: str
    args: dict[str, Any] = {}


def fastapi_app() -> Any:
    app = FastAPI()

    @app.post("/tool")
    def tool(call: Call) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        return {"data": call.name}

    return app


def sdk_app() -> Any:
    async def call_tool(_: Any, params: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[TextContent(text=params.name)])

    server: Server[Any] = Server("no-op", get_tool_input_schema=lambda _: None)
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    return server.streamable_http_app(json_response=True, stateless_http=True)


APPS: dict[str, Callable[[], Any]] = {"fastapi": fastapi_app, "sdk": sdk_app}


def main(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"listening on http://127.0.0.1:{listener.getsockname()[1]};", file=sys.stderr, flush=True)
        config = uvicorn.Config(APPS[name](), loop="uvloop", http="httptools", ws="none", log_config=None)
        config.access_log = False
        with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(uvicorn.Server(config).serve([listener]))


if __name__ == "__main__":
    main(sys.argv[1])
