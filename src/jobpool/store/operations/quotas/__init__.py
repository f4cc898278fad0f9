"""Quotas: permits are taken in the claim, and return with what ends a lease.

May import: core, store.records, store.statements. Start with `claim`.
"""
