"""What enqueues in a Django project: its own tests, in each database."""

import re

from support.postgres.server import server
from support.site.django_project import in_postgres


def test_the_projects_own_tests_pass(project):
    """Transactions, results, options and settings, as `project/shop/tests.py` says."""
    keeps = [] if "SITE_DATABASE" not in project.env else ["--keepdb"]
    said = project.manage("test", "--noinput", "-v", "2", *keeps, "shop")
    assert int(re.search(r"Ran (\d+) tests", said)[1]) >= 30


def test_a_tests_database_is_dropped_once_the_tests_have_run(tmp_path):
    """PostgreSQL drops none in use: what tests and pages have opened is closed."""
    with in_postgres(tmp_path) as project:
        with server().connect(server().admin_url) as admin:
            info = admin.info
            host, port, name, _ = project.env["SITE_DATABASE"].split()
            project.env["SITE_DATABASE"] = f"{host} {port} {name} {info.user}"
            project.env |= {"SITE_PASSWORD": info.password, "SITE_TESTS": f"{name}_t"}
        project.env["DJANGO_SETTINGS_MODULE"] = "office.settings"
        enqueues = "shop.tests.InATransaction.test_a_job_commits_with_the_block"
        shows = "office.tests.Dashboard.test_the_staff_sees_it_below_the_admin"
        assert "Destroying" in project.manage("test", "--noinput", enqueues, shows)
