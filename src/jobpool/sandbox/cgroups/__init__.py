"""Control groups: one per run and one per child, where the host allows it.

May import: core, sandbox.metering, sandbox.protocol, sandbox.system. Start with
`cgroup`.
"""
