"""Queries on an index: `search`, and over the graph `questions` (where-used, lineage, inspect), `maps`, `plan`,
`bootload`. `root_index` keeps the index of one root; `hits` reads results from the files as they are now, `unindexed`
and `changed_files` those that are not in the index yet. The tools call in.
"""
