"""LLMC MCP: an MCP server that lets an AI agent work on a Linux machine."""

__version__ = "0.1.0"
