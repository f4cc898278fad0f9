"""The process that runs attempts, one after another.

May import: core, sandbox.app_loader, sandbox.cgroups, sandbox.confinement,
sandbox.protocol, sandbox.reset, sandbox.runs, sandbox.system. Start with `child`.
"""
