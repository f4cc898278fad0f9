"""Beginning: an application, a supervisor with its log, one program.

May import: cli.context, cli.exits, cli.flags, core, executor, monitoring,
sandbox, store, supervisor. Start with `launch`.
"""
