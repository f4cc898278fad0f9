"""A `concurrent.futures.Executor` whose jobs run under a supervisor of their own.

Theory of operation. Three kinds of process take part. The caller's own (`executor`,
`courier`) only pickles calls, keeps the line of those that wait, and ends futures. A
host (`host`), which is nobody's child and whose only link to the caller is a socket,
runs a supervisor over a store in its memory; it never unpickles anything. Its children
(`application`) unpickle a call, make it, and pickle what came of it. Whatever crosses
the socket goes in batches, and quick calls go to the children in bundles (`ledger`).
When the socket ends, or the caller's process, the host ends everything that it has
started.
"""
