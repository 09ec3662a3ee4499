"""The index on disk and how it is ranked.

`layout` (files and generations), `tables` (reading SQLite), `index` (SQLite and tantivy), `rank`, `features`, `fields`
(queries), `paths`, `embed` (word vectors), with the learned weights beside them.
"""
