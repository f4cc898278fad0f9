"""Control groups: one per run and one per child, where the host allows it.

May import: sandbox.metering, sandbox.protocol, core. Start with `cgroup`.
"""
