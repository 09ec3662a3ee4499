"""MCP: methods of both protocol eras as plain payloads, and the stdio transport.

`methods` answers a request; `resources`, `prompts` and `completion` are its other subjects. `long_calls` has the calls
that one request and one reply don't cover: `tasks`, and those that ask the user (`elicitation`). `stdio` carries
messages over pipes. The HTTP transport is in `web`.
"""
