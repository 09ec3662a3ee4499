"""A team's fleet: what calls cost the database that replicas share, and what that means for a thousand developers.

`python -m benchmarks.fleet simulate` measures single calls on a real PostgreSQL (`measured`) and extrapolates
(`simulate`). Each further word of the command line is a module here with a `main(arguments)`.
"""
