"""Jobs, attempts and leases as records, and the outcomes of attempts.

Imports nothing else. Start with `outcome`, then `job`.
"""
