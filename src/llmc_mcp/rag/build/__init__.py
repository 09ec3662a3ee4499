"""The process that builds an index and follows changes, and its client in the server.

`keeper` is the confined process, `keeper_client` its end in the server; `walk` chooses files, `watch` follows them
by inotify, `parser_pool` forks parsers, `confine` bounds all of them; `syntax_child` and `syntax_client` check
whether a changed file still parses.
"""
