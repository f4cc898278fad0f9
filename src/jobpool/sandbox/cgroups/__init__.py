"""Control groups: one per run and one per child, where the host allows it.

May import: core, sandbox.metering, sandbox.protocol. Start with `cgroup`.
"""
