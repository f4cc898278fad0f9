"""Many quick calls that share one attempt.

May import: executor.wire. Start with `bundle`.
"""
