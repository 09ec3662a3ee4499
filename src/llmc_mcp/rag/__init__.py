"""Knowledge of a code base: an index of it, searches ranked by relevance, and the graph of its symbols.

The way of a file into the index, and of a question to its answer:

    walk → parse (grammar) → symbols → chunk → words ─┐                 question → words → index → rank → snippets
                              └→ references ──────────┴→ index (SQLite, tantivy) ─→ graph → where-used, map, plan

A file's references are stored with what its own scopes say of them (scan, scopes, bind_*, record) and linked across
files when somebody asks (modules, resolve, graph): a change of one file is one row, nothing linked has to be undone.

Only `search`, `questions`, `map`, `plan` and `bootload` are for the tools; nothing is imported before its first use.
"""
