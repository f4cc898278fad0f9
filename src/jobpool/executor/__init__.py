"""A `concurrent.futures.Executor` whose jobs run under a supervisor of their own.

Theory of operation. Three kinds of process take part. The caller's process (`executor`,
`caller`) only pickles calls, queues those that wait, and completes futures. The host
(`host`) runs a supervisor over a store in its memory; it is no child of the caller, its
only link to it is a socket, and it never unpickles anything. Its children (`child`)
unpickle a call, make it, and pickle the result. What crosses the socket goes in
batches, and quick calls go to the children in bundles (`host.ledger`). When the socket
closes or the caller's process ends, the host ends everything that it has started.

May import: core, sandbox, store, supervisor.
"""
