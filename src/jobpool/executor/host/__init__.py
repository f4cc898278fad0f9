"""The host: a supervisor of the executor's own, over a store in memory.

May import: core, executor.bundles, executor.child, executor.wire, sandbox, store,
supervisor. Start with `host`.
"""
