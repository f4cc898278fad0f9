"""Isolation measures by name: what was asked for and what is in force.

May import: errors. Start with `measures`.
"""
