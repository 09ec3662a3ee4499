"""The index on disk and how it is ranked.

`layout` (files and generations), `tables` (reading SQLite), `index` (SQLite and tantivy), `received` (what another
server has built), `rank`, `features`, `fields` (queries), `paths`, `embed` (word vectors), with the learned weights
beside them.
"""
