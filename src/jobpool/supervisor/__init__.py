"""The parent: leases, starts, watches, settles. Runs no user code."""
