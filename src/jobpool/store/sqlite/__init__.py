"""The store on SQLite: durable in one file, for one host.

May import: core, store.operations, store.records, store.statements, store.wakeup,
store.watermark. Start with `store`; below it `connection.database` owns the file.
"""
