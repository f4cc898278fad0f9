"""Decisions as tables and arithmetic: what an outcome does to a job.

May import: core.jobs. Start with `lifecycle`, which asks the others.
"""
