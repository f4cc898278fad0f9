"""What the application of a chaos run declares of quotas, and its judges know."""

PLACES = 3
"""Handlers of the one kind that may run at once."""
RATE_PER_S, BURST = 8, 8
"""Handlers of the other kind that may begin."""
