"""The caller's side: futures, the queue of calls, the thread that talks to the host.

May import: core, executor.host, executor.pickling, executor.wire, sandbox. Start with
`engine`.
"""
