"""Schedules: their times, what happens to each, and what a step of them does.

Pure, but for two things that Python reads once a process: the time zones, and cronsim.
May import: core.jobs, core.units. Start with `rule`; `plan` is what stores call.
"""
