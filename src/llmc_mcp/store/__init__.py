"""The store: what all servers and shells of a user, or all servers of a team, share.

`base` says what a store does. `sqlite` is one database under the data directory, `postgres` one for several machines;
`opening` chooses between them, `transfer` copies one into the other, `schema`
holds the migrations of both, `data_dir` says where state lies, `calls` are the queries over past calls,
`leases` the locks between servers (MAASL: anti-stomp leases with fencing tokens), `workspaces` and `naming` what rows
call a file that machines share, `limits` what servers with one PostgreSQL count together, `listening` and `notices` how
they hear of each other's changes, `replicas` the servers of a team.

Engines and the gate call in. The store knows nothing of what its rows mean to them.
"""
