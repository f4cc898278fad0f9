"""Jobs, attempts and leases as records, and the outcomes of attempts.

May import: nothing of ours. Start with `outcome`, then `job`.
"""
