"""What a person sees of agents' work and takes back, on whatever surface: the page, the terminal view, `llmc`.

`undoing` makes undos on the roots that changes were made below, `summary` says what a session did, `processes` shows
what runs in the background, `checks` is what `llmc doctor` finds. A person is not bound to the roots of one server:
what may be seen and done is decided by the surface, from who asks.
"""
