"""A Django project of its own for each database: who enqueues, and who runs it."""

import pytest

from support.site.django_project import Project, in_postgres


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def project(request, tmp_path_factory):
    """The project in a database without a table."""
    folder = tmp_path_factory.mktemp("site")
    if request.param == "sqlite":
        yield Project(folder)
        return
    with in_postgres(folder) as found:
        yield found
