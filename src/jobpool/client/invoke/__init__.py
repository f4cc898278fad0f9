"""Calling handlers and hooks, in a child or a test, and completing an attempt.

May import: client.declare, client.encoding, client.payload, core, store. Start with
`invocation`.
"""
