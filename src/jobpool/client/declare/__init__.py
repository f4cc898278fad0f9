"""What an application says of a handler: its options and retries.

May import: core. Start with `declaration`.
"""
