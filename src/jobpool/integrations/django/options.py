"""``OPTIONS`` of a backend in ``TASKS``, read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from django.conf import settings
from django.utils.module_loading import import_string

from jobpool.core.application.handler_spec import check_pool
from jobpool.core.config.layers import nearest
from jobpool.core.jobs.job import NewJob
from jobpool.errors import ConfigError
from jobpool.integrations.django.database import store_url
from jobpool.integrations.django.words import task as tasks

APPLICATION = "jobpool.integrations.django.application"
"""What supervisors run: ``--app``."""
BACKEND_VARIABLE = "DJANGO_TASKS_BACKEND"
"""Names the backend that is meant, if ``TASKS`` has several."""
_OF_CALL = ("task", "args", "kwargs")
"""What a schedule says of its task; all else is for `JobPool.schedule`."""


class BackendOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``TASKS[alias]`` says."""

    alias: str
    queues: tuple[str, ...]
    """The pools; empty: any."""
    database: str | None = "default"
    """The alias in ``DATABASES`` that has the store; None: `store` is elsewhere."""
    schema: str | None = None
    """In PostgreSQL: the schema of the store's tables, in that database."""
    store: str | None = None
    """URL of a store that is in none of Django's databases."""
    modules: tuple[str, ...] = ()
    """Modules that define tasks, beside ``tasks`` of each app."""
    defaults: Mapping[str, Any] = {}
    """Options of all tasks."""
    tasks: Mapping[str, Mapping[str, Any]] = {}
    """Options by a task's path; they go before those in the code."""
    quotas: Mapping[str, Mapping[str, Any]] = {}
    """By name, as `JobPool.quota` takes them."""
    schedules: Mapping[str, Mapping[str, Any]] = {}
    """By name: ``task``, ``args``, ``kwargs``, and what `JobPool.schedule` takes."""
    codec: str | None = None
    """Dotted path of a `jobpool.Codec`."""
    payload_max: str | int | None = None
    role: str | None = None
    """Dotted path of a function that returns what a user may do in the dashboard."""

    @property
    def url(self) -> str:
        """The store's URL.

        Raises:
            ConfigError: no store can be there.
        """
        return self.store or store_url(self.database or "default", self.schema)

    def declared(self, task: Any) -> dict[str, Any]:
        """Return the options of all jobs of a task.

        Args:
            task: as the code declares it.
        """
        by_path = self.tasks.get(task.module_path, {})
        given = {**self.defaults, **tasks.given(task, tasks.DECLARED), **by_path}
        if "max_attempts" not in given and "retry" not in given:
            # As other backends: a task that has raised has failed.
            given["max_attempts"] = 1
        return given


def read_options(
    alias: str, queues: Iterable[str], given: Mapping[str, Any]
) -> BackendOptions:
    """Return the options of one backend.

    Args:
        alias: in ``TASKS``.
        queues: its ``QUEUES``.
        given: its ``OPTIONS``.

    Raises:
        ConfigError: one is unknown, has a value of another type, or two contradict
            each other; the message names it.
    """
    where = f"TASKS[{alias!r}]"
    known = set(BackendOptions.__struct_fields__) - {"alias", "queues"}
    for name in given:
        if name not in known:
            hint = nearest(str(name), sorted(known))
            raise ConfigError(f"{where}: OPTIONS have no {name!r}; {hint}")
    if given.get("store") is not None and {"database", "schema"} & given.keys():
        raise ConfigError(
            f"{where}: OPTIONS have a store, and a database or a schema; the store is "
            "in one of your databases, or it has a URL of its own: leave one out"
        )
    values = {**given, "alias": alias, "queues": tuple(sorted(queues))}
    if given.get("store") is not None:
        values["database"] = None
    for pool in values["queues"]:
        check_pool(pool)
    try:
        read = msgspec.convert(values, BackendOptions, strict=True)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"{where}: OPTIONS: {exc}") from None
    for path, options in {"defaults": read.defaults, **read.tasks}.items():
        _check_job(f"{where}: OPTIONS: {path}", options, read.quotas)
    for name, schedule in read.schedules.items():
        _check_schedule(f"{where}: OPTIONS: schedules", name, schedule)
    return read


def codec_of(options: BackendOptions) -> Any:
    """Return the codec that the options name, or None.

    Raises:
        ConfigError: it cannot be imported.
    """
    if options.codec is None:
        return None
    try:
        return import_string(options.codec)
    except ImportError as exc:
        raise ConfigError(
            f"TASKS[{options.alias!r}]: OPTIONS: codec: {exc}; expected the dotted "
            "path of an object, such as 'shop.secrets.codec'"
        ) from exc


def times_of(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `JobPool.schedule` takes of a schedule; its zone is Django's own."""
    own = {name: value for name, value in schedule.items() if name not in _OF_CALL}
    return {"tz": settings.TIME_ZONE, **own}


def _check_schedule(where: str, name: str, schedule: Mapping[str, Any]) -> None:
    # 5 ms, which projects without schedules do not pay.
    from jobpool.client.declare.schedules import ScheduleOptions, read_schedule  # noqa: PLC0415

    known = {*_OF_CALL, *ScheduleOptions.__annotations__}
    for option in schedule:
        if option not in known:
            hint = nearest(str(option), sorted(known))
            raise ConfigError(f"{where}: {name}: there is no option {option!r}; {hint}")
    task = schedule.get("task")
    if not isinstance(task, str):
        raise ConfigError(
            f"{where}: {name}: expected the path of a task, such as "
            f"'task': 'shop.tasks.report', got {task!r}"
        )
    if not isinstance(schedule.get("args", []), (list, tuple)):
        raise ConfigError(f"{where}: {name}: args: expected a list")
    if not isinstance(schedule.get("kwargs", {}), Mapping):
        raise ConfigError(f"{where}: {name}: kwargs: expected arguments by name")
    job = NewJob(kind=task, pool="default", payload=b"{}")
    try:
        read_schedule(name, job, **times_of(schedule))
    except ConfigError as exc:
        raise ConfigError(f"{where}: {exc}") from None


def _check_job(
    where: str, options: Mapping[str, Any], quotas: Mapping[str, Any]
) -> None:
    for name in options:
        if name not in tasks.DECLARED:
            hint = nearest(name, sorted(tasks.DECLARED))
            raise ConfigError(f"{where}: there is no option {name!r}; {hint}")
    try:
        tasks.check_declared(options)
    except ConfigError as exc:
        raise ConfigError(f"{where}: {exc}") from None
    for name in options.get("quotas", ()):
        if name not in quotas:
            raise ConfigError(
                f"{where}: there is no quota {name!r} in OPTIONS['quotas']; it has "
                f"{', '.join(quotas) or 'none'}"
            )
