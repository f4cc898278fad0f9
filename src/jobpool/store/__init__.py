"""Where jobs, attempts and leases are kept. Knows databases, not processes.

May import: core. Start with `opening.open_store` and `protocol.Store`, which every
store implements.
"""
