"""Several servers on one state in PostgreSQL: what they withstand, and what it costs."""
