"""Jobs that do not run like others: misfits, suspects, kinds that crash in a row.

May import: core, store.operations.quotas, store.operations.repair, store.records,
store.statements.
"""
