"""What every store promises, by who asks for it; `store.protocol` puts it together.

May import: core, store.records. Start with `supervising`.
"""
