"""The network that commands have where a list says what they may reach: one proxy per server, and its two ends.

`client` is the server's end: it starts the proxy process, hands it the listening socket of each session's machine and
the list, and collects what was denied. `proxy` is the process; `requests` reads what a client asks of it (CONNECT, an
absolute URI, SOCKS5), `hello` a TLS ClientHello, `addresses` says which addresses are nobody's to reach, `upstream`
resolves and dials, `pump` moves bytes between two sockets.

The modules of the process are standard library only. Nothing in here decides what is allowed: the list is the user's.
"""
