"""How long writers wait for each other. `te` imports this at every start, so it imports nothing."""

BUSY_S = 5.0  # how long a transaction waits for other writers


def never_cancelled() -> None:
    """The check of a caller that can't be cancelled."""
