"""The HTTP server: MCP over Streamable HTTP, REST, metrics and HTML pages on one port.

`serve` runs uvicorn, `wire` limits connections, `guard` checks host, origin, token and body, `auth` manages tokens and
scopes, `app` defines the REST routes, `mcp` wraps the SDK's transport, `plain_calls` spares plain tool calls that
transport, `threads` runs calls outside the event loop, `drain` brings a server to its end. With other servers on the
same store: `replicas` forwards calls about programs (`replica_claims` signs them, `replica_client` sends them,
`replica_route` takes them).
"""
