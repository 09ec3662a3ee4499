"""The store: what all servers and shells of a user, or all servers of a team, share.

`base` says what a store does. `sqlite` is one database under the data directory, `postgres` one for several machines
(`statements` on its connections, `listening` to what other servers announce); `opening` chooses between them,
`transfer` copies one into the other, `schema` holds the migrations of both, `data_dir` says where state lies.
`workspaces` translates paths to what rows call them, `naming` gives workspaces their names, `row_paths` knows the
columns. `root_sets` says which rows a caller may see, `root_keys` how rows carry that. `calls` and `sessions` are the
queries over past calls, `leases` the locks between servers (MAASL: anti-stomp leases with fencing tokens),
`limits` what servers with one PostgreSQL count together, `notices` how they hear of each other's changes, `replicas`
the servers of a team.

Engines and the gate call in. The store knows nothing of what its rows mean to them.
"""
