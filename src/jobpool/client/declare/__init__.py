"""Reads what an application declares: a handler's options, retry rules, job options.

May import: core. Start with `declaration`.
"""
