"""Quotas: what is declared, what is in force, and which jobs may begin.

Pure. A *quota* is a named cap, rate or both; a *bucket* one value of what it counts by;
a *lane* all jobs that have the same buckets, and are blocked together. May import:
core.jobs, core.units. Start with `definition`; `rules` says what is in force, `allot`
is what stores call.
"""
