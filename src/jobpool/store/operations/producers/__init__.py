"""What decides about new jobs before they are stored: admission, and debouncing.

May import: core, store.records, store.statements. Start with `debounce`.
"""
