"""JobpoolBackend: what ``TASKS`` names."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, ClassVar

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import Signal

from jobpool.client.gateway import LazyStore
from jobpool.errors import ConfigError
from jobpool.integrations.django.attempts import runner, tell_of_death
from jobpool.integrations.django.compat import (
    BaseTaskBackend,
    task_backends,
    task_enqueued,
)
from jobpool.integrations.django.database import drop_connections
from jobpool.integrations.django.jobs import DjangoJobs
from jobpool.integrations.django.options import BackendOptions, read_options
from jobpool.integrations.django.words import task as tasks


class JobpoolBackend(BaseTaskBackend):  # type: ignore[misc] # Django has no types
    """Django's tasks as jobs of jobpool.

    Args:
        alias: in ``TASKS``.
        params: ``QUEUES``, which are pools, and ``OPTIONS``: see the manual's page
            `django`.

    Raises:
        ImproperlyConfigured: an option is wrong.

    Attributes:
        read: its options.
    """

    task_class = tasks.JobpoolTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        try:
            self.read = read_options(alias, self.queues, self.options)
        except ConfigError as exc:
            raise ImproperlyConfigured(str(exc)) from None

    @property
    def jobs(self) -> DjangoJobs:
        """The `JobPool` that has its jobs: for all that Django has no words for.

        Raises:
            ConfigError: no store can be where ``OPTIONS`` say, or one is wrong.
        """
        return _Pools.of(self.read, type(self))

    def validate_task(self, task: Any) -> None:
        """Refuse a task that cannot be run, or has a wrong option.

        Raises:
            InvalidTask: as of Django's own backends, or an option is wrong.
        """
        super().validate_task(task)
        tasks.check(task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a task; it is durable once this returns.

        If the store is in one of Django's databases, and a transaction is open there,
        the job belongs to it, and commits or vanishes with it.

        Returns:
            Its `TaskResult`.

        Raises:
            InvalidTask: as of `validate_task`, or no supervisor would know the task.
            TypeError: an argument is no JSON value.
            JobpoolError: as of `Handler.enqueue`. In all cases nothing was stored.
        """
        self.validate_task(task)
        result, created = self.jobs.enqueue_task(task, args, kwargs)
        if created:
            task_enqueued.send(sender=type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return the `TaskResult` that has an id.

        Raises:
            TaskResultDoesNotExist: there is none; it may have been pruned.
            UsageError: this is a task; children never open the store.
            StoreError: the store could not be read.
        """
        return self.jobs.result_of(result_id)

    def check(self, **_kwargs: Any) -> Iterator[checks.CheckMessage]:
        """Yield what is wrong with the settings."""
        if why := self.broken():
            yield checks.Error(f"TASKS[{self.alias!r}]: {why}", id="jobpool.E001")
            return
        url = self.read.url
        for alias, other in self._others():
            if other.url == url:
                yield checks.Error(
                    f"TASKS[{self.alias!r}] and TASKS[{alias!r}] have one store",
                    hint="A supervisor runs the tasks of one backend; use QUEUES, "
                    "which are pools, or give one of them a store of its own.",
                    id="jobpool.E002",
                )
        try:
            if self.read.schedules:
                self.jobs.declare_schedules()
        except ConfigError as exc:
            yield checks.Error(f"TASKS[{self.alias!r}]: {exc}", id="jobpool.E003")
        if self.read.store is not None:
            yield checks.Warning(
                f"TASKS[{self.alias!r}] has a store that is in none of DATABASES",
                hint="A task that is enqueued within atomic() is stored at once, runs "
                "perhaps before the commit, and also after a rollback. Enqueue with "
                "transaction.on_commit, or put the store into the database: "
                "OPTIONS = {'database': 'default'}.",
                id="jobpool.W001",
            )

    def broken(self) -> str:
        """Say why no store can be where ``OPTIONS`` say; "": one can."""
        try:
            self.read.url  # noqa: B018 - it raises
        except ConfigError as exc:
            return str(exc)
        return ""

    def _others(self) -> Iterator[tuple[str, BackendOptions]]:
        """Yield those of the other backends of this kind whose store is known."""
        for alias, other in jobpool_backends():
            if alias != self.alias and not other.broken():
                yield alias, other.read


def supervised(alias: str) -> DjangoJobs:
    """Return the application that a supervisor runs: a backend's tasks, registered.

    Args:
        alias: in ``TASKS``; "": there is only one.

    Raises:
        ConfigError: there is none, or it is not clear which is meant.
        Exception: whatever a module with tasks raises.
    """
    backend = the_backend(alias)
    jobs = backend.jobs
    jobs.register_all()
    drop_connections()  # what imports have opened is no child's
    return jobs


def jobpool_backends() -> Iterator[tuple[str, JobpoolBackend]]:
    """Yield those in ``TASKS`` that are of this kind, by alias."""
    for alias in task_backends:
        backend = task_backends[alias]
        if isinstance(backend, JobpoolBackend):
            yield alias, backend


def the_backend(alias: str) -> JobpoolBackend:
    """Return a backend of this kind.

    Args:
        alias: in ``TASKS``; "": there is only one.

    Raises:
        ConfigError: there is none, or it is not clear which is meant.
    """
    found = dict(jobpool_backends())
    if alias in found:
        return found[alias]
    path = f"{__package__}.{JobpoolBackend.__name__}"
    if not found:
        raise ConfigError(f"no backend in TASKS is {path}; name it as BACKEND of one")
    if alias or len(found) > 1:
        raise ConfigError(
            f"backend: expected one of {', '.join(sorted(found))}, got "
            f"{alias or 'none'}; name one: manage.py jobpool --backend NAME"
        )
    return next(iter(found.values()))


closing = Signal()
"""All that has the store with this URL open is to close it."""
_IN_A_QUEUE = "sqlite:///jobpool.db"
"""The URL of what nobody opens: `jobpool.testing.Queue` is there instead."""


class _Pools:
    """The `JobPool` of each backend; each thread has a backend object of its own."""

    lock = threading.Lock()
    found: ClassVar[dict[tuple[str, str], DjangoJobs]] = {}

    @classmethod
    def of(cls, options: BackendOptions, sender: type) -> DjangoJobs:
        """Return it; the store's URL is another one while tests run."""
        try:
            url = options.url
        except ConfigError:
            if not LazyStore.stand_ins:
                raise
            url = _IN_A_QUEUE  # any database will do, also one in memory
        key = options.alias, url
        jobs = cls.found.get(key)
        if jobs is None or jobs.options != options:
            with cls.lock:
                jobs = cls.found.get(key)
                if jobs is None or jobs.options != options:
                    cls._close([one for one in cls.found if one[0] == options.alias])
                    jobs = DjangoJobs(options, url, partial(runner, sender))
                    finished = tell_of_death(sender, jobs)
                    jobs.on_dead(finished)
                    jobs.on_quarantine(finished)
                    cls.found[key] = jobs
        return jobs

    @classmethod
    def forget(cls, *, setting: str, **_more: Any) -> None:
        """Close them when a test changes the settings."""
        if setting in {"TASKS", "DATABASES"}:
            with cls.lock:
                cls._close([*cls.found])

    @classmethod
    def _close(cls, keys: Iterable[tuple[str, str]]) -> None:
        """Close some, and let no test's queue count their tasks beside the others'."""
        for key in keys:
            jobs = cls.found.pop(key)
            jobs.close()
            jobs.living.discard(jobs)


def close_stores(database: str) -> None:
    """Close the stores in one of ``DATABASES``; the next use opens them again."""
    for jobs in [*_Pools.found.values()]:
        if jobs.options.database == database:
            closing.send(sender=JobpoolBackend, url=jobs.url)
            jobs.close()


setting_changed.connect(_Pools.forget, dispatch_uid="jobpool")
