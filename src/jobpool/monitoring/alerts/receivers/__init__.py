"""Who is told: a web server, or a program.

May import: core, sandbox. Start with `receiver`.
"""
