"""What the kernel forbids a child: namespaces, Landlock, seccomp, limits.

May import: sandbox.metering, sandbox.protocol, sandbox.system, core. Start with
`setup`.
"""
