"""The process that builds an index and follows changes, and its clients in the servers.

`keeper` is the confined process, one for all servers with the same root and data directory; `keeper_lines` are its
connections, `ranker` is its fork that searches. In a server, `keeper_host` finds or starts it and `keeper_client` asks
it; `messages` is what both sides say. Where there is another index of the same files, a new one begins with that:
`seed` finds it on this disk, `share` in the store of a team. `commit_plan` says when it commits, `walk` chooses files,
`watch` follows them by inotify, `parser_pool` forks parsers, which run `parser_worker`; `syntax_child` and
`syntax_client` check whether a changed file still parses.
"""
