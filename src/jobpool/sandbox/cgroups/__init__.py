"""Control groups: one for each run, one for each child, where the host allows it.

May import: sandbox.system. Start with `cgroup`.
"""
