"""What a supervisor reports, by what it is about.

May import: core.application, core.isolation, core.jobs, core.rules, core.units. Start
with `event`.
"""
