"""Jobs: the list, one job and its story, what has died by its reasons.

May import: core, dashboard.asked, dashboard.rendering, monitoring, operations, store,
words. Start with `listing`.
"""
