"""Durable truth: jobs, attempts, leases. Knows databases and no process.

May import core and errors. Entry points: `opening.open_store`, and `base.Store`, the
protocol that every store fulfils.
"""
