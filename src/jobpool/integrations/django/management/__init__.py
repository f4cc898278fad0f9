"""What ``manage.py`` offers.

May import: client, integrations.django.backend, integrations.django.compat,
integrations.django.discovery, integrations.django.options. Start with `commands`.
"""
