"""The process that has the application loaded and forks children from it.

May import: sandbox.child and below. Start with `zygote`.
"""
