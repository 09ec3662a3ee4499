"""What servers that share one PostgreSQL do together: how exact, how fast, at what price."""
