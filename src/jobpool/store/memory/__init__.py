"""The store of one process: jobs live in its memory, and end with it.

For programs that want isolation and limits but no queue on disk. Everything that the
Store protocol says holds, except that jobs outlive their process: therefore no URL
leads here, and `open_store` goes on refusing memory. Entry point: `store.MemoryStore`.
"""
