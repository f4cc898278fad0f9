"""The host: a supervisor of the executor's own, over a store in memory.

May import: executor.wire, executor.bundles, supervisor, store. Start with `host`.
"""
