"""What is seen of one job by whoever looks: its reads, why it waits, who serves it.

May import: core, operations, sandbox, store, words. Start with `reading`.
"""
