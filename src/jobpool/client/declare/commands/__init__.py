"""Programs as jobs: declared once as a list of words, run in a child for each job.

May import: client.payload, core. Start with `command.py`.
"""
