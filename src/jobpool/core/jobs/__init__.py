"""Jobs, attempts and leases as records, and the outcomes of attempts.

May import: errors. Start with `outcome`, then `job`.
"""
