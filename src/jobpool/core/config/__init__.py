"""Settings: where each value comes from, what it may be, and what it means.

May import: core.application, core.rules, core.units. Start with `settings`, which
`load` makes.
"""
