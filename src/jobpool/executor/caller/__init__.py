"""The caller's side: futures, the queue of calls, the thread that talks to the host.

May import: executor.wire, executor.bundles. Start with `engine`.
"""
