"""Kinds: what their attempts use beside their limits, and what would fit.

May import: core, dashboard.asked, dashboard.live, dashboard.reading,
dashboard.rendering, monitoring, operations, store, words. Start with `listing`.
"""
