"""Rules and records: pure, with no I/O, no clock reading and no processes.

May import: errors. Start with `jobs.outcome`, then `rules.lifecycle`.
"""
