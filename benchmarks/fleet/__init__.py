"""Several servers on one state in PostgreSQL: what they withstand, what it costs, what a thousand developers need.

Each word of the command line is a module here with a `main(arguments)`: `simulate` measures single calls on a real
PostgreSQL (`measured`) and extrapolates, `soak` kills replicas, `calls` compares with SQLite, `limits` and `usage`
measure what replicas count and record together.
"""
