"""Not where tasks are looked for: the settings name it."""

from shop.compat import task


@task
def send(to):
    return f"to {to}"
