"""Settings: where each value comes from, what it may be, and what it means.

May import: core.rules, core.isolation. Start with `settings`; `load` makes them.
"""
