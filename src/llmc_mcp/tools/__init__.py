"""One function is one tool: its signature is the schema, its decorator holds description, hints and policy.

A tool gets a `Context` and typed arguments, calls engines and returns a typed result. It never sees a transport,
renders nothing and decides no policy.
"""
