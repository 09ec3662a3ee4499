"""The HTTP server: MCP over Streamable HTTP, REST, metrics and HTML pages on one port.

`serve` runs uvicorn, `wire` limits connections, `guard` checks host, origin, token and body, `auth` manages tokens and
scopes, `app` defines the REST routes, `mcp` wraps the SDK's transport, `plain_calls` spares plain tool calls that
transport, `threads` runs calls outside the event loop.
"""
