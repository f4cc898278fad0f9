"""Control groups: one per run and one per child, where the host allows it.

May import: sandbox.system. Start with `cgroup`.
"""
