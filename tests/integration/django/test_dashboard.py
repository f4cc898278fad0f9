"""The dashboard behind the login of Django's admin: the project's own tests of it."""

import re

from support.site.django_project import Project


def test_the_dashboard_is_behind_the_admins_login(tmp_path):
    """Who sees it, who acts, and whose forms count, as `project/office` says."""
    site = Project(tmp_path)
    site.env["DJANGO_SETTINGS_MODULE"] = "office.settings"
    said = site.manage("test", "--noinput", "office")
    assert int(re.search(r"Ran (\d+) tests", said)[1]) >= 8
