"""What enqueues, within one process; tests/integration/django runs it per database."""

import dataclasses
import io
import pickle
import threading
from datetime import UTC, datetime, timedelta
from unittest import mock

from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase, override_settings
from django.utils import timezone

from jobpool import ArgumentsRejected, KeyConflict, UsageError
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from shop import elsewhere
from shop.compat import (
    DUMMY,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    signals,
    task,
    task_backends,
)
from shop.models import Order
from shop.tasks import (
    by_position,
    count_orders,
    fail,
    pay,
    send,
    slow_pay,
)

OURS = "jobpool.integrations.django.JobpoolBackend"


def stored():
    """Count what everybody sees in the store."""
    store = open_store(task_backends["default"].jobs.url)
    try:
        return store.count(Filter())
    finally:
        store.close()


class InATransaction(TransactionTestCase):
    def setUp(self):
        self.before = stored()

    def test_a_job_commits_with_the_block(self):
        """Nobody sees it before; whoever has enqueued it does."""
        with transaction.atomic():
            order = Order.objects.create()
            result = pay.enqueue(order.pk)
            self.assertEqual(stored(), self.before)
            self.assertEqual(pay.get_result(result.id), result)
            result.refresh()
            self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertEqual(stored(), self.before + 1)
        self.assertEqual(pay.get_result(result.id), result)

    def test_a_job_vanishes_with_the_block(self):
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            Order.objects.create()
            result = pay.enqueue(1)
            raise ZeroDivisionError
        self.assertEqual(stored(), self.before)
        self.assertFalse(Order.objects.exists())
        with self.assertRaises(TaskResultDoesNotExist):
            pay.get_result(result.id)

    def test_a_job_vanishes_with_a_savepoint(self):
        with transaction.atomic():
            kept = pay.enqueue(1)
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                pay.enqueue(2)
                raise ZeroDivisionError
        self.assertEqual(stored(), self.before + 1)
        self.assertEqual(pay.get_result(kept.id).args, [1])

    def test_a_refused_job_leaves_the_block_usable(self):
        with transaction.atomic():
            pay.using(key="17").enqueue(1)
            with self.assertRaises(KeyConflict):
                pay.using(key="17").enqueue(2)
            Order.objects.create()
        self.assertEqual(stored(), self.before + 1)
        self.assertTrue(Order.objects.exists())

    def test_nothing_is_stored_in_a_block_that_has_failed(self):
        """Django's own error, as for each query there."""
        with (
            self.assertRaises(transaction.TransactionManagementError),
            transaction.atomic(),
        ):
            with self.assertRaises(DatabaseError):
                connection.cursor().execute("SELECT no_such_column")
            transaction.set_rollback(True)
            pay.enqueue(1)
        self.assertEqual(stored(), self.before)

    def test_without_autocommit_a_job_commits_by_hand(self):
        """Whoever manages transactions does so for jobs, too."""
        transaction.set_autocommit(False)
        try:
            pay.enqueue(1)
            transaction.rollback()
            pay.enqueue(2)
            transaction.commit()
        finally:
            transaction.set_autocommit(True)
        self.assertEqual(stored(), self.before + 1)

    def test_supervisors_are_woken_by_the_commit(self):
        """Not before, when there would be nothing for them."""
        jobs, woken = task_backends["default"].jobs, []
        jobs._gateway.wake = lambda: woken.append(stored())
        try:
            with transaction.atomic():
                pay.enqueue(1)
                self.assertEqual(woken, [])
            self.assertEqual(woken, [self.before + 1])
        finally:
            del jobs._gateway.wake

    async def test_it_is_the_same_when_it_is_asynchronous(self):
        result = await count_orders.aenqueue()
        self.assertEqual(await count_orders.aget_result(result.id), result)

    def test_all_threads_share_one_store(self):
        """Each has a backend object of its own, as Django makes them."""
        found = [task_backends["default"].jobs]
        other = threading.Thread(
            target=lambda: found.append(task_backends["default"].jobs)
        )
        other.start()
        other.join()
        self.assertIs(*found)


class InATestCase(TestCase):
    """Its transaction never commits."""

    def test_what_is_enqueued_can_be_read(self):
        result = pay.enqueue(7, card="x")
        found = pay.get_result(result.id)
        self.assertEqual(found, result)
        self.assertEqual((found.args, found.kwargs), ([7], {"card": "x"}))


class Results(TransactionTestCase):
    def test_a_job_may_have_what_no_task_can_be_given(self):
        """As whoever enqueues it from the command line, or edits it, may say."""
        backend = task_backends["default"]
        handler = backend.jobs.registered(pay).handler
        job = handler.options(priority=500).enqueue(1)
        result = backend.get_result(job.ref)
        self.assertEqual((result.task.priority, result.task.func), (500, pay.func))
        self.assertNotEqual(pay.priority, 500)

    def test_arguments_come_back_as_they_were_passed(self):
        for args, kwargs in (
            ((1,), {}),
            ((1, 2), {"third": [3]}),
            ((1, 2, 3, 4), {"more": {"a": None}}),
            ((1,), {"second": 2}),
        ):
            with self.subTest(args=args, kwargs=kwargs):
                result = by_position.enqueue(*args, **kwargs)
                found = by_position.get_result(result.id)
                self.assertEqual(found.args, list(args))
                self.assertEqual(found.kwargs, kwargs)

    def test_arguments_are_stored_by_name(self):
        """So that people and quotas find them by name, however they were passed."""
        result = pay.enqueue(5, vendor="v")
        jobs = task_backends["default"].jobs
        arguments = jobs.get(result.id).arguments()
        self.assertEqual(arguments, {"order": 5, "vendor": "v", "_positional": 1})

    def test_arguments_that_do_not_fit_are_refused(self):
        before = stored()
        for wrong in (
            pay.enqueue,
            lambda: pay.enqueue(1, 2),
            lambda: pay.enqueue(1, colour="red"),
        ):
            with self.assertRaises(ArgumentsRejected):
                wrong()
        with self.assertRaisesMessage(TypeError, "Unsupported type"):
            pay.enqueue(datetime.now(UTC))
        with self.assertRaisesMessage(InvalidTask, "_positional"):
            by_position.enqueue(1, _positional=2)
        self.assertEqual(stored(), before)

    def test_an_unknown_id_is_no_result(self):
        """Nor is the bare number of a job: ids cannot be guessed."""
        job = task_backends["default"].jobs.get(pay.enqueue(1).id)
        for wrong in ("123", "", "no id", str(job.id), "9" * 30):
            with self.assertRaises(TaskResultDoesNotExist):
                task_backends["default"].get_result(wrong)

    def test_a_job_that_is_no_task_is_no_result(self):
        jobs = task_backends["default"].jobs
        if "plain" not in {spec.kind for spec in jobs.handler_specs()}:
            jobs.job("cpu", kind="plain")(lambda: None)
        (other,) = jobs._gateway.enqueue([plain_job("plain")])
        with self.assertRaisesMessage(TaskResultDoesNotExist, "which is no task"):
            task_backends["default"].get_result(jobs.get(other.id).ref)

    def test_a_task_keeps_the_values_of_its_job(self):
        later = timezone.now().replace(microsecond=0) + timedelta(hours=1)
        asked = pay.using(
            run_after=later, priority=7, queue_name="default", key="k", tenant="t"
        )
        result = asked.enqueue(1)
        self.assertEqual(result.task, asked)
        self.assertEqual(pay.get_result(result.id).task, asked)
        info = task_backends["default"].jobs.get(result.id).info()
        self.assertEqual((info.pool, info.priority, info.tenant), ("default", 7, "t"))
        self.assertEqual(info.run_at_ms, later.timestamp() * 1000)

    def test_a_naive_time_is_of_the_current_zone(self):
        with override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo"):
            later = datetime(2100, 1, 1, 9)  # noqa: DTZ001 - that is the point
            result = pay.using(run_after=later).enqueue(1)
            found = pay.get_result(result.id)
            self.assertEqual(found.task.run_after, later)
            self.assertIsNone(found.enqueued_at.tzinfo)
        info = task_backends["default"].jobs.get(result.id).info()
        self.assertEqual(
            info.run_at_ms, datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1000
        )

    def test_a_key_stands_for_one_job(self):
        """The second time nothing was enqueued, and nobody is told so."""
        told = []
        signals.task_enqueued.connect(
            lambda task_result, **_: told.append(task_result.id),
            weak=False,
            dispatch_uid="key",
        )
        try:
            first = pay.using(key="once").enqueue(1)
            second = pay.using(key="once").enqueue(1)
        finally:
            signals.task_enqueued.disconnect(dispatch_uid="key")
        self.assertEqual(first, second)
        self.assertEqual(told, [first.id])

    def test_a_canceled_job_has_failed(self):
        result = pay.enqueue(1)
        jobs = task_backends["default"].jobs
        self.assertTrue(jobs.get(result.id).cancel(note="why not"))
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        (error,) = result.errors
        self.assertEqual(error.exception_class.__name__, "JobUnsuccessful")
        self.assertIn("canceled", error.traceback)
        self.assertEqual(result.attempts, 0)
        self.assertIsNotNone(result.finished_at)

    def test_where_nothing_can_be_read_a_task_runs_all_the_same(self):
        """In a strict pool: its context knows the job by its number."""
        jobs = task_backends["default"].jobs
        refused = UsageError("a handler of a strict pool cannot read jobs")
        with mock.patch.object(jobs._gateway, "read", side_effect=refused):
            result = jobs.running(pay, 17, ([1], {"card": "x"}))
        self.assertEqual((result.id, result.args, result.attempts), ("17", [1], 0))

    def test_an_erased_job_has_no_arguments(self):
        result = pay.enqueue(1, card="secret")
        jobs = task_backends["default"].jobs
        jobs.get(result.id).cancel()
        store = open_store(jobs.url)
        try:
            store.erase([jobs.get(result.id).id])
        finally:
            store.close()
        result.refresh()
        found = pay.get_result(result.id)
        self.assertEqual((found.args, found.kwargs), ([], {}))


class Tasks(SimpleTestCase):
    databases = ("default",)

    def test_a_task_that_no_supervisor_would_know_is_refused(self):
        with self.assertRaisesMessage(InvalidTask, "'shop.elsewhere'"):
            elsewhere.unknown.enqueue()

    def test_a_variant_of_a_task_is_that_task(self):
        """`slow_pay = pay.using(...)` in a module does not make another one."""
        jobs = task_backends["default"].jobs
        jobs.register_all()
        self.assertIs(jobs.registered(slow_pay).task, pay)

    def test_a_module_that_the_settings_name_is_known(self):
        self.assertEqual(
            task_backends["default"].jobs.registered(send).handler.kind,
            "shop.letters.send",
        )

    def test_options_go_from_the_settings_to_the_code(self):
        """By path before the decorator's, and those before the settings' for all."""
        options = task_backends["default"].read
        self.assertEqual(options.declared(pay)["timeout"], "20s")
        self.assertEqual(options.declared(fail)["max_attempts"], 2)
        changed = dataclasses.replace(fail, timeout="5s", max_attempts=3)
        self.assertEqual(options.declared(changed)["timeout"], "5s")

    def test_a_task_that_raises_has_failed_unless_it_says_so(self):
        """As with other backends: it may not bear being run again."""
        options = task_backends["default"].read
        self.assertEqual(options.declared(count_orders)["max_attempts"], 1)
        retried = dataclasses.replace(count_orders, retry={"OSError": ["1s"]})
        self.assertNotIn("max_attempts", options.declared(retried))

    def test_a_wrong_option_is_refused_where_it_is_written(self):
        for options, word in (
            ({"timeout": "soon"}, "timeout"),
            ({"memory": -1}, "memory"),
            ({"max_attempts": 0}, "max_attempts"),
            ({"unique_until": "start"}, "unique"),
            ({"soft_timeout": "2s", "timeout": "1s"}, "soft_timeout"),
        ):
            with self.subTest(options), self.assertRaisesMessage(InvalidTask, word):
                task(**options)(count_orders.func)

    def test_what_all_jobs_share_is_not_of_one_job(self):
        with self.assertRaisesMessage(TypeError, "@task(quotas=...)"):
            pay.using(quotas=["vendor"])
        with self.assertRaisesMessage(TypeError, "there is no option 'colour'"):
            pay.using(colour="red")

    def test_a_task_can_be_pickled_if_djangos_can(self):
        """With its options. Those of django-tasks cannot."""
        if not hasattr(type(pay), "_reconstruct"):
            self.skipTest("the framework's own tasks cannot be pickled")
        asked = pay.using(key="k", priority=3)
        self.assertEqual(pickle.loads(pickle.dumps(asked)), asked)


class Settings(SimpleTestCase):
    databases = ("default",)

    def checked(self, options, queues=("default",), more=None):
        mine = {"BACKEND": OURS, "OPTIONS": options, "QUEUES": list(queues)}
        with override_settings(TASKS={"default": mine, **(more or {})}):
            return [one.id for one in task_backends["default"].check()]

    def test_what_is_right_has_no_message(self):
        self.assertEqual(self.checked({}), [])
        self.assertEqual(list(task_backends["default"].check()), [])

    def test_another_database_is_named(self):
        """Since nothing there commits with the application's transaction."""
        found = self.checked({"store": "sqlite:////tmp/elsewhere.db"})
        self.assertEqual(found, ["jobpool.W001"])

    def test_two_backends_with_one_store_are_an_error(self):
        other = {"BACKEND": OURS}
        self.assertEqual(self.checked({}, more={"other": other}), ["jobpool.E002"])
        elsewhere = {"BACKEND": DUMMY}
        self.assertEqual(self.checked({}, more={"other": elsewhere}), [])

    def test_a_schedule_of_no_task_is_an_error(self):
        """And one whose arguments do not fit."""
        for given in (
            {"task": "shop.tasks.no"},
            {"task": "shop.tasks.pay"},
            {"task": "shop.tasks.count_orders", "args": [1]},
        ):
            options = {"schedules": {"daily": {**given, "cron": "@daily"}}}
            with self.subTest(given):
                self.assertEqual(self.checked(options), ["jobpool.E003"])

    def test_a_database_in_memory_is_an_error(self):
        held = dict(connection.settings_dict)
        connection.settings_dict |= {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": "file:memorydb_default?mode=memory&cache=shared",
        }
        try:
            self.assertEqual(self.checked({}), ["jobpool.E001"])
        finally:
            connection.settings_dict |= held

    def test_wrong_options_are_refused(self):
        for options, queues, word in (
            ({"modles": []}, (), "did you mean 'modules'?"),
            ({"store": "sqlite:///x.db", "database": "default"}, (), "leave one out"),
            ({"defaults": {"timout": "1s"}}, (), "did you mean 'timeout'?"),
            ({"tasks": {"a.b": {"timeout": "x"}}}, (), "a.b"),
            ({"defaults": {"quotas": ["none"]}}, (), "no quota 'none'"),
            ({"modules": "shop"}, (), "modules"),
            ({}, ("No Pool",), "No Pool"),
            ({"schedules": {"n": {"cron": "@daily"}}}, (), "'task': 'shop.tasks."),
            (
                {"schedules": {"n": {"task": "a.b", "corn": "@daily"}}},
                (),
                "did you mean 'cron'?",
            ),
            ({"schedules": {"n": {"task": "a.b", "cron": "at noon"}}}, (), "noon"),
            (
                {"schedules": {"n": {"task": "a.b", "args": "x"}}},
                (),
                "args: expected a list",
            ),
        ):
            with (
                self.subTest(options),
                self.assertRaisesMessage(Exception, word) as caught,
            ):
                self.checked(options, queues)
            self.assertEqual(type(caught.exception).__name__, "ImproperlyConfigured")

    def test_the_command_says_if_no_backend_is_ours(self):
        with (
            override_settings(TASKS={"default": {"BACKEND": DUMMY}}),
            self.assertRaisesMessage(CommandError, "no backend in TASKS"),
        ):
            call_command("jobpool", stdout=io.StringIO())

    def test_the_command_asks_which_backend_is_meant(self):
        two = {"BACKEND": OURS, "OPTIONS": {"store": "sqlite:////tmp/other.db"}}
        with (
            override_settings(TASKS={"default": {"BACKEND": OURS}, "two": two}),
            self.assertRaisesMessage(CommandError, "expected one of default, two"),
        ):
            call_command("jobpool", stdout=io.StringIO())

    def test_where_the_store_is_follows_the_database(self):
        """While tests run, it is in the tests' database."""
        self.assertIn(
            str(connection.settings_dict["NAME"]), task_backends["default"].jobs.url
        )

    def test_a_store_elsewhere_takes_no_part_in_transactions(self):
        """It is stored at once; the check has said so."""
        from django.conf import settings

        url = f"sqlite:///{settings.SITE}/elsewhere.db"
        mine = {"BACKEND": OURS, "OPTIONS": {"store": url}}
        with override_settings(TASKS={"default": mine}):
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                result = count_orders.enqueue()
                raise ZeroDivisionError
            self.assertEqual(count_orders.get_result(result.id), result)


def plain_job(kind):
    from jobpool.core.jobs.job import NewJob

    return NewJob(kind=kind, pool="cpu", payload=b"{}")
