"""How much memory a child and its processes use, and whether they are idle.

May import: sandbox.system. Start with `sampling`.
"""
