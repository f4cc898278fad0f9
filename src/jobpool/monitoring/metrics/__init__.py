"""Metrics for Prometheus: a supervisor's own, and the gauges of the whole fleet.

May import: core, monitoring.scaling, store. Start with `catalogue`.
"""
