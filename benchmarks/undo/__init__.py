"""Undo of what commands do: recorded commands replayed, undone and compared; and what it costs."""
