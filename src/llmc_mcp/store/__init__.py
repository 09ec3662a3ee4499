"""The store: one SQLite database under the data directory, shared by all servers and `te` of a user.

`data_dir` says where it lies, `schema` holds the migrations, `sqlite` the connections and their transactions, `calls`
the queries over past calls, `leases` the locks between servers (MAASL: anti-stomp leases with fencing tokens).

Engines and the gate call in. The store knows nothing of what its rows mean to them.
"""
