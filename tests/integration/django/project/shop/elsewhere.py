"""Nothing names it, so that no supervisor imports it."""

from shop.compat import task


@task
def unknown():
    """Nobody would run it."""
