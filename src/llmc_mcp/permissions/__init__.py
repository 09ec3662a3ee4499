"""Who may do what: `rules` (the operator's table, first match decides), `globs` (its patterns), `approvals` (what a
person is asked, and the answers), `tokens` (those of HTTP clients), `sign_ins` (of browsers, and the secrets that
servers sign with). Nothing here runs a call: the gate asks.
"""
