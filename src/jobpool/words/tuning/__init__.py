"""Which limits would fit what attempts have used, and why.

May import: core, store. Start with advice.py.
"""
