"""What the kernel forbids a child: namespaces, Landlock, seccomp, limits.

May import: core, sandbox.metering, sandbox.protocol, sandbox.system. Start with
`setup`.
"""
