"""Isolation measures by name: what is asked for and what is in force.

May import: core.config.settings, errors. Start with `measures`.
"""
