"""Questions to an index: `search`, and over the graph `questions` (where-used, lineage, inspect), `maps`, `plan`,
`bootload`. The tools call in; results are read from the files as they are now.
"""
