"""How well code search finds: quality on annotated repositories and on docstrings, cost, and others beside it."""
