"""Schedules: those that an application's code declares, and all of its store's.

May import: client.declare, client.gateway, client.handler, client.job, core,
operations, store. Start with `schedules`.
"""
