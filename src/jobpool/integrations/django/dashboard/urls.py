"""The dashboard's pages, for ``include`` in the project's own.

``path("admin/jobs/", include("jobpool.integrations.django.dashboard.urls"))``
"""

from __future__ import annotations

from django.urls import path

from jobpool.integrations.django.dashboard.view import show

app_name = "jobpool"
urlpatterns = [
    path("", show, name="overview"),
    path("<path:path>", show, name="page"),
]
