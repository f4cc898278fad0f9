"""What jobpool offers for other packages; each module needs its own extra.

May import: nothing of ours. Start with `fernet`.
"""
