"""Commands that agents were recorded to send to bash, run in plain bash and through run_cmd on equal files."""
