"""Reading below the roots: paths, text, listings, searches, handles.

`filesystem` opens every path beneath a root by openat2 and is the only way in; `names` spells names that are not
UTF-8; `codec` and `slices` turn bytes into lines; `reader`, `listing` and `ripgrep` answer the read, list and search
tools; `handles` keeps what a reply had no room for, `handle_pages` reads it back.

Nothing here changes a file below a root: that is `changes`.
"""
