"""`jobpool show`: one job, so that its problem is understood in ten seconds.

May import: cli.context, cli.flags, cli.jobs.audit, cli.jobs.quota_words,
cli.jobs.records, cli.jobs.selection, cli.machine, cli.output, core, operations, store.
Start with command.py.
"""
