"""The index on disk and how it is ranked: `layout` (files and generations), `tables` (SQLite, for reading), `index`
(SQLite and tantivy), `rank`, `features`, `embed` (word vectors), with the learned weights beside them.
"""
