"""The parent: leases, starts, watches, settles. Runs no user code.

May import: sandbox, store, core. Start with `machine`, which decides; `serve` is the
entry point.
"""
