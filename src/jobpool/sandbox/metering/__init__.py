"""Metering: the memory of a child and its processes, and whether they are idle.

May import: sandbox.system. Start with `sampling`.
"""
