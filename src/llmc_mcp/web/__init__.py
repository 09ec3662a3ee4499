"""HTTP: Streamable HTTP MCP, REST, metrics and pages on one port.

`serve` runs uvicorn, `wire` limits connections, `guard` checks host, origin, token and body, `auth` knows tokens and
scopes, `app` holds the REST routes, `mcp` the SDK's transport, `threads` runs calls off the event loop.
"""
