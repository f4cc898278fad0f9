"""The commands of ``manage.py``, each of a file's name.

May import: client, integrations.django.backend, integrations.django.compat,
integrations.django.discovery, integrations.django.options. Start with `jobpool`.
"""
