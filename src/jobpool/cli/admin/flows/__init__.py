"""`jobpool flows`: what goes together, how far it is, and what is done about it.

May import: cli.output, core, operations, store. Start with words.py.
"""
