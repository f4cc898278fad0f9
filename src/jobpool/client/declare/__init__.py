"""Reads what an application declares: a handler's options, retry rules, commands.

May import: client.payload, core. Start with `declaration`.
"""
