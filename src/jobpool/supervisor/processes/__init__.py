"""Zygotes and children as the loop sees them: starting, watching, reaping.

May import: supervisor.machine, sandbox. Start with `children`.
"""
