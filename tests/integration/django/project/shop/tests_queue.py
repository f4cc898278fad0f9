"""Tasks in a test's queue: a project's tests run them, whatever its database."""

import copy

from django.conf import settings
from django.db import connections, transaction
from django.test import TestCase, override_settings

from jobpool.testing import Queue
from shop.compat import TaskResultStatus, task_backends
from shop.models import Order
from shop.tasks import pay, pay_at_once, send


class InAQueue(TestCase):
    """In the transaction of the test, which never commits."""

    def test_a_task_runs_when_the_test_says_so(self):
        order = Order.objects.create()
        with Queue() as queue:
            result = pay.enqueue(order.pk, card="42")
            self.assertEqual(pay.get_result(result.id).status, TaskResultStatus.READY)
            queue.drain(raises=True)
            self.assertEqual(
                pay.get_result(result.id).status, TaskResultStatus.SUCCESSFUL
            )
        order.refresh_from_db()
        self.assertEqual(order.paid_by, "42")

    def test_a_task_may_enqueue_others(self):
        """The test's transaction is not the task's: it waits for nothing."""
        order = Order.objects.create()
        with Queue() as queue:
            result = pay_at_once.enqueue(order.pk)
            queue.drain(raises=True)
            paid = pay.get_result(pay_at_once.get_result(result.id).return_value)
            self.assertEqual(paid.status, TaskResultStatus.SUCCESSFUL)

    def test_a_task_runs_inline(self):
        order = Order.objects.create()
        with Queue(inline=True), transaction.atomic():
            pay.enqueue(order.pk, card="42")
        order.refresh_from_db()
        self.assertEqual(order.paid_by, "42")

    def test_schedules_of_the_settings_have_ticks(self):
        """With the arguments that they say, by the clocks of Django's zone."""
        order = Order.objects.create()
        changed = copy.deepcopy(settings.TASKS)
        changed["default"]["OPTIONS"]["schedules"] = {
            "hourly": {
                "task": "shop.tasks.pay",
                "args": [order.pk],
                "kwargs": {"card": "43"},
                "every": "1h",
                "tenant": "ann",
            }
        }
        with override_settings(TASKS=changed), Queue() as queue:
            jobs = task_backends["default"].jobs
            (declared,) = jobs.declared_schedules()
            self.assertEqual(declared.rule.tz, "Europe/Berlin")
            queue.advance("2h", raises=True)
            kinds = [(job.info().kind, job.info().tenant) for job in queue.jobs()]
        self.assertEqual(kinds, [("shop.tasks.pay", "ann")] * 2)
        order.refresh_from_db()
        self.assertEqual(order.paid_by, "43")

    def test_a_database_in_memory_will_do(self):
        """As Django makes it for tests; no store can be there."""
        own = connections["default"].settings_dict
        name, own["NAME"] = own["NAME"], "file:memorydb_default?mode=memory"
        try:
            with Queue(inline=True):
                result = send.enqueue("ann")
                self.assertEqual(
                    send.get_result(result.id).status, TaskResultStatus.SUCCESSFUL
                )
        finally:
            own["NAME"] = name
