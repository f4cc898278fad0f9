"""The supervisor: leases jobs, runs them in children, settles them.

It runs no user code, but for `dev`, which has no children.

May import: core, sandbox, store. Start with `machine`, which decides; `serve` is the
entry point.
"""
