"""The store on SQLite: durable in one file, for one host.

May import: core, store.contract, store.operations, store.records, store.statements,
store.wakeup. Start with `store`; below it `connection.database` owns the file.
"""
