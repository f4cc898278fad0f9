"""What is said of a flow: its steps in order, their states, and what is waited for.

May import: core, operations, store, words.figures. Start with words.py.
"""
