"""Django's words for a job: its task with options, its arguments, its result.

May import: client, core, integrations.django.compat. Start with `task`.
"""
