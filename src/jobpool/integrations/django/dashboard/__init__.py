"""The dashboard behind the login of Django's admin.

May import: integrations.django.backend, integrations.serving, operations. Start with
`view`.
"""
