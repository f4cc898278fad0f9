"""Isolation measures by name: what is asked for and what is in force.

May import: core.config. Start with `measures`.
"""
