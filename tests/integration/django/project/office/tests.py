"""The dashboard in Django's admin; tests/integration/django runs it."""

import copy
from functools import partial

from django.contrib.auth.models import User
from django.test import AsyncClient, Client, TransactionTestCase, override_settings
from shop.compat import task_backends
from shop.tasks import pay

from jobpool import ConfigError
from jobpool.integrations import dashboard
from jobpool.store.opening import open_store
from jobpool.store.records.operating import AuditFilter

PLACE = "/admin/jobs/"
# A page waits for what it shows, however busy the machine is.
dashboard.Dashboard = partial(dashboard.Dashboard, deadline_s=30)
OURS = {"HTTP_SEC_FETCH_SITE": "same-origin"}


def with_role(path):
    from django.conf import settings

    changed = copy.deepcopy(settings.TASKS)
    changed["default"]["OPTIONS"]["role"] = path
    return override_settings(TASKS=changed)


class Dashboard(TransactionTestCase):
    def enter(self, name, **rights):
        self.client.force_login(User.objects.create_user(name, **rights))

    def cancel(self, result, **headers):
        """Send the form that cancels a job; return the status and the job's."""
        answer = self.client.post(
            f"{PLACE}jobs/{result.id}/cancel",
            "note=not+today",
            content_type="application/x-www-form-urlencoded",
            **headers,
        )
        result.refresh()
        return answer.status_code, result.status

    def test_nobody_sees_it_without_a_login_of_the_staff(self):
        """They are led to the admin's own login, and back."""
        for name in (None, "visitor"):
            if name:
                self.enter(name)
            for path in ("", "jobs", "live"):
                answer = self.client.get(f"{PLACE}{path}")
                self.assertRedirects(
                    answer,
                    f"/admin/login/?next={PLACE}{path}",
                    fetch_redirect_response=False,
                )

    def test_the_staff_sees_it_below_the_admin(self):
        """All of its links and files are below its own place."""
        result = pay.enqueue(1)
        self.enter("ann", is_staff=True)
        for path in ("", "jobs"):
            answer = self.client.get(f"{PLACE}{path}")
            self.assertEqual(answer.status_code, 200)
            text = answer.content.decode()
            for link in ('href="', 'src="', 'action="'):
                for target in text.split(link)[1:]:
                    self.assertTrue(target.startswith((PLACE, "#", "?")), target[:60])
        self.assertIn(result.id.partition("-")[0], text)
        self.assertIn("default-src 'none'", answer["Content-Security-Policy"])
        self.assertEqual(answer["X-Frame-Options"], "DENY")

    def test_its_files_are_served(self):
        self.enter("ann", is_staff=True)
        answer = self.client.get(f"{PLACE}static/dashboard.css")
        self.assertEqual(answer.status_code, 200)
        self.assertTrue(answer["Content-Type"].startswith("text/css"))

    def test_an_open_page_is_told_to_do_without_news(self):
        """No worker is held by it; a browser does not ask again."""
        self.enter("ann", is_staff=True)
        self.assertEqual(self.client.get(f"{PLACE}live").status_code, 204)

    def test_a_page_that_is_not_there_is_not_found(self):
        self.enter("ann", is_staff=True)
        self.assertEqual(self.client.get(f"{PLACE}nothing").status_code, 404)

    def test_superusers_act_and_others_of_the_staff_see(self):
        result = pay.enqueue(1)
        self.enter("ann", is_staff=True)
        self.assertEqual(self.cancel(result, **OURS), (403, "READY"))
        self.enter("root", is_staff=True, is_superuser=True)
        status, became = self.cancel(result, **OURS)
        self.assertEqual((status // 100, became), (3, "FAILED"))
        store = open_store(task_backends["default"].jobs.url)
        try:
            newest, *_ = store.audits(AuditFilter(), 10)
        finally:
            store.close()
        self.assertEqual((newest.who, newest.note), ("root", "not today"))

    def test_forms_of_other_sites_count_for_nothing(self):
        """Also with Django's own check of tokens, which these pages do not use."""
        result = pay.enqueue(1)
        self.client = Client(enforce_csrf_checks=True)
        self.enter("root", is_staff=True, is_superuser=True)
        for headers in (
            {"HTTP_SEC_FETCH_SITE": "cross-site"},
            {"HTTP_ORIGIN": "https://evil.example"},
            {},
        ):
            self.assertEqual(self.cancel(result, **headers), (403, "READY"))
        self.assertEqual(self.cancel(result, **OURS)[1], "FAILED")

    async def test_it_is_the_same_below_asgi(self):
        user = await User.objects.acreate(username="ann", is_staff=True)
        client = AsyncClient()
        await client.aforce_login(user)
        answer = await client.get(PLACE)
        self.assertEqual(answer.status_code, 200)

    def test_a_project_decides_who_may_do_what(self):
        """By default superusers are admins, and others of the staff see."""
        with with_role("office.roles.of_user"):
            self.enter("bea", is_staff=True)
            self.assertEqual(self.client.get(PLACE).status_code, 200)
            self.enter("cy", is_staff=True, is_superuser=True)
            self.assertEqual(self.client.get(PLACE).status_code, 302)
            self.enter("dan", is_staff=True)
            with self.assertRaisesMessage(ConfigError, "'no such role'"):
                self.client.get(PLACE)
