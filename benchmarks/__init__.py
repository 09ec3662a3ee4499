"""Side-by-side measurements with other MCP servers, with ripgrep and with wc. See README.md."""
