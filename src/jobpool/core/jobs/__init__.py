"""What a job is, and how an attempt of it can end.

May import: errors. Start with `outcome`, then `job`.
"""
