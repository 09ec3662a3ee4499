"""Knowledge of a code base: an index of it, searches ranked by relevance, and the graph of its symbols.

The way of a file into the index, and of a question to its answer:

    walk → parse (grammar) → symbols → chunk → words ─┐                 question → words → index → rank → snippets
                              └→ references ──────────┴→ index (SQLite, tantivy) ─→ graph → where-used, map, plan

Only `search`, `graph`, `plan` and `bootload` are for the tools; nothing here is imported before its first use.
"""
