"""Flows: their list, and one as a graph with live states.

May import: core, dashboard.asked, dashboard.reading, dashboard.rendering, monitoring,
operations, store, words. Start with layout.py.
"""
