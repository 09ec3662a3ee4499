"""Code search: an index of each root, ranked search, and the graph of symbols.

The way of a file into the index, and of a query to its result:

    build/walk → parse → store/index (SQLite, tantivy)          query → parse/words → store/rank → query/snippets
                   └→ references ──────────┘  └─→ query/graph → where-used, map, plan

A file's references are stored as its own scopes resolve them, and linked across files at query time: a change of one
file is one row, and no link has to be undone. The tools call `query`; nothing is imported before its first use.
Everything that differs between languages is in one table, `parse/languages`.
"""
