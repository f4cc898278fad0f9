"""The store's methods, written once for both SQL databases in terms of named queries.

Each database brings its `Session`, its `Database`, and SQL under the same names. What
Python decides is decided here, so that two databases cannot decide differently.

May import: core, store.contract, store.records, store.statements. Start with `lease`.
"""
