"""The messages between parent and child, and how far a child is trusted.

May import: core. Start with `messages`, then `verdict`.
"""
