"""The supervisor: leases jobs, runs them in children, settles them. Runs no user code.

May import: core, sandbox, store. Start with `machine`, which decides; `serve` is the
entry point.
"""
