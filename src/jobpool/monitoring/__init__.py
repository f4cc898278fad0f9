"""What tells people and programs how jobpool fares.

May import: core, operations, sandbox, store, words. Start with `metrics.catalogue`,
of traces with `tracing.export`.
"""
