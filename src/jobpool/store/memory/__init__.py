"""The store in one process's memory: its jobs end with the process.

For programs that want isolation and limits but no queue on disk. It keeps the whole
Store protocol, except that jobs do not outlive their process. So no URL names it, and
`open_store` refuses memory.

May import: core, store.contract, store.operations, store.records, store.statements,
store.wakeup.
"""
