"""Calling a handler, in a child or a test, and completing its attempt.

May import: client.payload, core, store. Start with `invocation`.
"""
