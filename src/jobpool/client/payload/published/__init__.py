"""Arguments that no handler checks: against what supervisors have published.

May import: client.payload.strict_json, core, operations, store. Start with `checker`.
"""
