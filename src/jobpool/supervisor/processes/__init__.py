"""Zygotes and children as processes: starting, watching, reaping.

May import: supervisor.machine, sandbox. Start with `children`.
"""
