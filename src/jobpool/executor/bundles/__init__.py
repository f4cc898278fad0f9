"""Many quick calls that share one attempt.

May import: core, executor.wire, sandbox. Start with `bundle`.
"""
