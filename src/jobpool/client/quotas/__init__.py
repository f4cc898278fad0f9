"""Quotas: as an application declares them, what its jobs count by, and permits.

May import: client.declare, client.payload, core. Start with `quota`.
"""
