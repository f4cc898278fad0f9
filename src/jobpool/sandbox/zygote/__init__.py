"""The process that has the application loaded and forks children from it.

May import: core, sandbox.app_loader, sandbox.cgroups, sandbox.child,
sandbox.confinement, sandbox.protocol, sandbox.reset, sandbox.runs, sandbox.system.
Start with `zygote`.
"""
