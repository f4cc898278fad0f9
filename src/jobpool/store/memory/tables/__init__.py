"""Rows and tables: the jobs with their indexes, and tables of small records.

A table derives its indexes from the rows, so that a caller that puts a row, whether
new, changed or restored, need not update them.

May import: core, store.records, store.statements. Start with `rows`.
"""
