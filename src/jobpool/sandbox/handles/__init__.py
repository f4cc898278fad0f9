"""The parent's handles: one for a child, one for a zygote.

May import: core, sandbox.cgroups, sandbox.child, sandbox.confinement, sandbox.protocol,
sandbox.runs, sandbox.system, sandbox.zygote. Start with `child`.
"""
