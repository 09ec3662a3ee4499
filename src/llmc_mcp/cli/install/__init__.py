"""`llmc install`: what is known of MCP clients, and edits of their configuration files that keep comments."""
