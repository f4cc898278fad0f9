from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/jobs/", include("jobpool.integrations.django.dashboard.urls")),
    path("admin/", admin.site.urls),
]
