"""MCP: methods of both protocol eras as plain payloads, and the stdio transport.

`methods` answers a request; `resources`, `prompts` and `completion` are its other subjects; `stdio` carries messages
over pipes. The HTTP transport is in `web`.
"""
