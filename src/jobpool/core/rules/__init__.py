"""Decisions as tables and arithmetic: what an attempt's end does to its job.

May import: core.jobs, core.units. Start with `lifecycle`, which uses the others but
`schedules`, `quotas` and `flows`.
"""
