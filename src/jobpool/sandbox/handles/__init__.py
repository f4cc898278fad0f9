"""The parent's handles: one for a child, one for a zygote.

May import: every other room of the sandbox. Start with `child`.
"""
