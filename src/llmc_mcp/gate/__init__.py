"""The one way to a tool.

`dispatch` resolves a name, checks scope, limits and arguments, runs the tool and records the call; `catalog` says
which tools a mode lists; `render` fits results into a reply; `rate_limit`, `usage`, `audit` and `log` are what their
names say. `shared_limits` counts with other servers, `audit_chain` links and verifies lines of the audit, `audit_trail`
is where they lie; `elsewhere` is what other replicas do for it.

Surfaces call `Gate.call`. Every rule about calls lives here, every rule about things in an engine.
"""
