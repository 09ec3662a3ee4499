"""Knowledge of a code base: an index of it, searches ranked by relevance, and the graph of its symbols.

The way of a file into the index, and of a query to its result:

    build/walk → parse → store/index (SQLite, tantivy)          query → parse/words → store/rank → query/snippets
                   └→ references ──────────┘  └─→ query/graph → where-used, map, plan

A file's references are stored with what its own scopes say of them and linked across files when somebody asks: a
change of one file is one row, and nothing linked has to be undone. The tools call `query`; nothing is imported
before its first use.
"""
