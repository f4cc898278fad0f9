"""The dashboard: what a browser shows of a store, and what people do from there.

May import: client, core, manual, monitoring, operations, store, words. Start with
`routes`.
"""
