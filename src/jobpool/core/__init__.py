"""Rules and records: pure, with no I/O, no clock reading and no processes.

May import: nothing of ours. Start with `jobs.outcome`, then `rules.lifecycle`.
"""
