"""What the kernel forbids a child: namespaces, Landlock, seccomp, limits.

May import: sandbox.protocol, sandbox.system. Start with `setup`.
"""
