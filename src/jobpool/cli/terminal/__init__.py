"""Whole terminals: keys, pictures that are painted again, bars of what lasts.

May import: cli.output, core.
"""
