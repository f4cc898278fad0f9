"""`jobpool show`: one job, so that its problem is understood in ten seconds.

May import: cli.context, cli.flags, cli.jobs.audit, cli.jobs.records,
cli.jobs.selection, cli.output, core, monitoring, store, words. Start with command.py.
"""
