"""Flows as applications build them, and handles of those that are stored.

May import: client.declare, client.gateway, client.handler, client.job, client.payload,
core, operations, store. Start with `flow`.
"""
