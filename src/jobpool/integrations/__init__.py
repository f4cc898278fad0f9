"""What jobpool offers for other packages; each module needs its own extra.

May import: client, core, dashboard, operations, sandbox, store. Start with `fernet`.
"""
