"""Settings: what can be set, where it is read from, and whose word counts.

`schema` declares every setting with its type, default and trust rule; `load` merges flags, environment and files;
`trust` keeps the hashes of workspace files that the user vouched for.

Anyone may read a `Config`; nobody changes one after start-up. Nothing here acts on a setting.
"""
