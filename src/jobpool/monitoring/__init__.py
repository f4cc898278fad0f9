"""What tells people and programs how jobpool fares: metrics.

May import: core, store. Start with `metrics.catalogue`.
"""
