"""What stands in the audit trail: ids as short texts, and which rows are about a job.

May import: core, store. Start with entries.py.
"""
