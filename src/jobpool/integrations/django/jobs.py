"""DjangoJobs: the `JobPool` behind a backend, in whose store its tasks are jobs."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from django.db import connections
from django.utils import timezone

from jobpool.client.gateway import LazyStore
from jobpool.client.handler import Call, Handler
from jobpool.client.jobpool import JobPool
from jobpool.client.quotas.quota import Cost, Quota
from jobpool.core.application.current import channel
from jobpool.core.config.layers import nearest
from jobpool.core.jobs.job import Attempt, Job
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.errors import ArgumentsRejected, ConfigError, JobNotFound, UsageError
from jobpool.integrations.django.compat import (
    InvalidTask,
    TaskResultDoesNotExist,
    normalize_json,
)
from jobpool.integrations.django.database import in_transaction
from jobpool.integrations.django.discovery import all_tasks, declared_task
from jobpool.integrations.django.options import BackendOptions, codec_of, times_of
from jobpool.integrations.django.words import task as tasks
from jobpool.integrations.django.words.arguments import Parameters
from jobpool.integrations.django.words.results import moment, task_result, unread_result

Arguments = tuple[Sequence[Any], Mapping[str, Any]]
"""Those by position, and those by keyword."""


class Registered(NamedTuple):
    """A task whose jobs can be stored and run."""

    task: Any
    """As its module declares it."""
    handler: Handler[..., Any]
    parameters: Parameters


class DjangoJobs(JobPool):
    """The `JobPool` of one backend.

    Everything that `JobPool` offers works beside Django's words: quotas, schedules,
    flows, operations.

    Args:
        options: what ``TASKS`` says.
        url: the store's.
        runner: makes the function that a child calls for a task.

    Raises:
        ConfigError: a quota or the codec is wrong.
    """

    def __init__(
        self,
        options: BackendOptions,
        url: str,
        runner: Callable[[DjangoJobs, Any, Parameters], Callable[..., Any]],
    ) -> None:
        super().__init__(url, codec=codec_of(options), payload_max=options.payload_max)
        self.options = options
        self.url = url
        self._runner = runner
        self._tasks: dict[str, Registered] = {}
        self._registering = threading.Lock()
        self._declared_quotas = {
            name: self.quota(name, **given) for name, given in options.quotas.items()
        }
        self._gateway.pools |= set(options.queues)
        self._scheduled: set[str] = set()
        """Schedules of the settings that are declared."""

    # -- tasks -----------------------------------------------------------------------

    def register_all(self) -> None:
        """Register every task that can be found, as a supervisor needs them.

        Raises:
            ConfigError: an option of a task is wrong.
            Exception: whatever a module raises when it is imported.
        """
        for task in all_tasks(self.options.modules).values():
            self._register(task)

    def registered(self, task: Any) -> Registered:
        """Return the task that has declared a task, registered.

        Raises:
            InvalidTask: no supervisor would know it; the message says what to do.
            ConfigError: an option of it is wrong.
        """
        known = self._tasks.get(task.module_path)
        if known is not None and known.task.func is task.func:
            return known
        declared = declared_task(task, self.options.modules)
        if declared is None or declared.func is not task.func:
            module = task.func.__module__
            raise InvalidTask(
                f"no supervisor would know the task {task.module_path}: it is neither "
                "in the module `tasks` of an app in INSTALLED_APPS nor in a module "
                f"that TASKS names; add {module!r} to OPTIONS['modules']. Nothing was "
                "enqueued"
            )
        return self._register(declared)

    def named(self, kind: str) -> Registered | None:
        """Return the task of a kind, or of one that it had before; None: it is none."""
        if kind not in self._tasks and channel() is None:
            self.register_all()
        if kind in self._tasks:
            return self._tasks[kind]
        found = (one for one in self._tasks.values() if kind in one.handler.kinds)
        return next(found, None)

    def declared_schedules(self) -> tuple[Declared, ...]:
        """Return the schedules of the code, and those of the settings.

        Raises:
            ConfigError: one is of no task, or its arguments do not fit.
        """
        self.declare_schedules()
        return super().declared_schedules()

    def declare_schedules(self) -> None:
        """Declare the schedules of the settings; errors as of `declared_schedules`."""
        for name, schedule in self.options.schedules.items():
            if name not in self._scheduled:
                self.schedule(name, self._call(name, schedule), **times_of(schedule))
                self._scheduled.add(name)

    def _call(self, name: str, schedule: Mapping[str, Any]) -> Call[Any]:
        where = f"OPTIONS: schedules: {name}"
        registered = self.named(schedule["task"])
        if registered is None:
            hint = nearest(schedule["task"], sorted(self._tasks))
            raise ConfigError(f"{where}: there is no task {schedule['task']}; {hint}")
        try:
            args = normalize_json(list(schedule.get("args", ())))
            named = normalize_json(dict(schedule.get("kwargs", {})))
            named = registered.parameters.marked(args, named)
            bound = registered.handler.options(priority=registered.task.priority)
            return bound.call(*args, **named)
        except (ArgumentsRejected, TypeError, ValueError) as exc:
            raise ConfigError(f"{where}: {exc}") from None

    def _register(self, task: Any) -> Registered:
        path = task.module_path
        with self._registering:
            if path in self._tasks:
                return self._tasks[path]
            try:
                parameters = Parameters(task.func, takes_context=task.takes_context)
            except ValueError as exc:
                raise InvalidTask(f"{path}: {exc}") from None
            options = self.options.declared(task)
            if "quotas" in options:
                options["quotas"] = self._costs(path, options["quotas"])
            function = self._runner(self, task, parameters)
            declare = self.job(task.queue_name, kind=path, **options)
            self._tasks[path] = Registered(task, declare(function), parameters)
            return self._tasks[path]

    def _costs(self, path: str, given: Any) -> list[Quota | Cost]:
        names = given if isinstance(given, Mapping) else dict.fromkeys(given, 1)
        for name in names:
            if name not in self._declared_quotas:
                raise ConfigError(
                    f"{path}: there is no quota {name!r} in OPTIONS['quotas']; it has "
                    f"{', '.join(self._declared_quotas) or 'none'}"
                )
        return [self._declared_quotas[name].cost(cost) for name, cost in names.items()]

    # -- jobs ------------------------------------------------------------------------

    def enqueue_task(self, task: Any, args: Any, kwargs: Any) -> tuple[Any, bool]:
        """Enqueue a task, in Django's transaction if the store is in its database.

        Returns:
            Its `TaskResult`, and whether a job was made: with a key or a unique text
            it may be there already.

        Raises:
            InvalidTask: no supervisor would know it.
            TypeError: an argument is no JSON value.
            ArgumentsRejected: they do not fit the task.
            UsageError: this is a task on SQLite, and a transaction is open.
            JobpoolError: as of `Handler.enqueue`. In all cases nothing was stored.
        """
        registered = self.registered(task)
        arguments = normalize_json(list(args)), normalize_json(dict(kwargs))
        try:
            named = registered.parameters.marked(*arguments)
        except ValueError as exc:
            raise InvalidTask(f"{task.module_path}: {exc}") from None
        connection = self._transaction()
        options = tasks.given(task, tasks.OF_ONE_JOB) | {
            "priority": task.priority,
            "run_at": _due(task.run_after),
            "connection": connection,
        }
        if task.queue_name != registered.handler.pool:
            if not self.options.queues:
                self._gateway.pools.add(task.queue_name)
            options["pool"] = task.queue_name
        enqueued = registered.handler.options(**options).enqueue(*arguments[0], **named)
        if connection is not None and connection.in_atomic_block:
            # Where it is not, Django does not know of the commit: supervisors poll.
            connection.on_commit(self._gateway.wake, robust=True)
        job = self._gateway.encoding.job(self._gateway.read(enqueued.id, connection))
        result = task_result(job, task, arguments, alias=self.options.alias)
        return result, enqueued.created

    def result_of(self, ref: str) -> Any:
        """Return the `TaskResult` of a job.

        Raises:
            TaskResultDoesNotExist: no task's job has this ref.
            UsageError: this is a task; children never open the store.
            StoreError: the store could not be read.
        """
        connection = self._transaction()
        gateway, encoding = self._gateway, self._gateway.encoding
        try:
            job_id = gateway.id_of(str(ref), connection)
            job = encoding.job(gateway.read(job_id, connection))
            payload = gateway.payload(job_id, connection)
        except JobNotFound as exc:
            raise TaskResultDoesNotExist(str(ref)) from exc
        registered = self.named(job.kind)
        if registered is None:
            raise TaskResultDoesNotExist(
                f"{ref}: job {job.id} is of the kind {job.kind}, which is no task"
            )
        named = {}
        if not job.is_erased:
            named = msgspec.json.decode(encoding.decoded(payload, job.codec))
        attempts: list[Attempt] = []
        if job.attempt:  # then it was committed, and the store is there
            attempts = encoding.attempts(
                gateway.store("reading attempts").attempts(job_id), job.codec
            )
        return task_result(
            job,
            _as_enqueued(registered.task, job, self.options.alias),
            registered.parameters.passed(named),
            alias=self.options.alias,
            attempts=attempts,
            value=None if job.result is None else msgspec.json.decode(job.result),
        )

    def running(self, task: Any, job_id: int, arguments: Arguments) -> Any:
        """Return the `TaskResult` of a job, within one of jobpool's children.

        In a strict pool nothing can be read; there its id is the job's number.
        """
        try:
            job = self._gateway.encoding.job(self._gateway.read(job_id))
        except UsageError:
            return unread_result(job_id, task, arguments, alias=self.options.alias)
        as_enqueued = _as_enqueued(task, job, self.options.alias)
        return task_result(job, as_enqueued, arguments, alias=self.options.alias)

    def _transaction(self) -> Any:
        """Return Django's connection if a transaction is open in the store's database.

        None in a test's queue: its jobs are there at once, and the transaction that is
        open is the test's own.

        Raises:
            UsageError: this is a task, and the store is in SQLite.
        """
        alias = self.options.database
        if alias is None or not in_transaction(alias) or LazyStore.stand_ins:
            return None
        connection = connections[alias]
        if channel() is not None and connection.vendor == "sqlite":
            raise UsageError(
                "a task cannot enqueue within atomic() on SQLite: its supervisor "
                "stores jobs there, and would wait for this transaction. Nothing was "
                "enqueued; do it after the block: "
                "transaction.on_commit(lambda: other_task.enqueue(...))"
            )
        return connection


def _due(run_after: Any) -> Any:
    """Return when a job is due, aware; None: now."""
    if run_after is None or timezone.is_aware(run_after):
        return run_after
    return timezone.make_aware(run_after)


def _as_enqueued(task: Any, job: Job, alias: str) -> Any:
    """Return a task with the values that a job was enqueued with, as far as stored."""
    changes: dict[str, Any] = {
        "priority": job.priority,
        "queue_name": job.pool,
        "backend": alias,
    }
    if job.attempt <= 1 and job.run_at_ms > job.created_at_ms:
        changes["run_after"] = moment(job.run_at_ms)
    if isinstance(task, tasks.JobpoolTask):
        changes |= {"key": job.key, "unique": job.unique, "tenant": job.tenant}
    # Not `using`: a job may have what Django's own words do not allow, such as a
    # priority that an operator has given it, and it is to run all the same.
    as_enqueued = copy.copy(task)
    for name, value in changes.items():
        if value is not None:
            object.__setattr__(as_enqueued, name, value)
    return as_enqueued
