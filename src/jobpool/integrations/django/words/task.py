"""JobpoolTask: a task with jobpool's options, for all of its jobs or for one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from jobpool.client.declare.declaration import read_limits, read_policy
from jobpool.client.declare.options import read_options
from jobpool.errors import ConfigError, UsageError
from jobpool.integrations.django.compat import InvalidTask, Task


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobpoolTask(Task):  # type: ignore[misc] # Django has no types
    """A task with jobpool's options. Made by ``@task(...)``, not by applications.

    The first are of ``using(...)`` and of one job; the next also of ``@task(...)`` and
    then of all its jobs; the last of ``@task(...)`` alone. They mean what they do in
    `Handler.options` and `JobPool.job`; ``quotas`` are names in the backend's
    ``OPTIONS``, or names with costs.
    """

    key: Any = None
    unique: Any = None
    unique_until: Any = None
    on_conflict: Any = None
    postpone_max: Any = None
    tenant: Any = None
    expires_in: Any = None

    timeout: Any = None
    memory: Any = None
    max_attempts: Any = None

    aliases: Any = None
    soft_timeout: Any = None
    retry: Any = None
    max_crashes: Any = None
    crash_window: Any = None
    memory_growth: Any = None
    memory_soft: Any = None
    heartbeat_timeout: Any = None
    rerun: Any = None
    redact: Any = None
    quotas: Any = None
    concurrency: Any = None
    retry_budget: Any = None

    def using(self, **changes: Any) -> Self:
        """Return this task with other values, such as ``using(key="order-17")``.

        Args:
            **changes: priority, queue_name, run_after and backend, as Django has them,
                and the options of one job.

        Raises:
            TypeError: there is no such option, or all jobs of a task share it.
            InvalidTask: a value is wrong.
        """
        for name in changes:
            if name in DECLARED and name not in OF_ONE_JOB:
                raise TypeError(
                    f"using(): {name!r} is the same for all jobs of a task; give it "
                    f"to the decorator, @task({name}=...)"
                )
            if name not in OF_ONE_JOB and name not in _DJANGOS:
                raise TypeError(
                    f"using(): there is no option {name!r}; expected one of "
                    f"{', '.join((*_DJANGOS, *OF_ONE_JOB))}"
                )
        given = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, **given)


_DJANGOS = ("priority", "queue_name", "run_after", "backend")
_OPTIONS = [one.name for one in dataclasses.fields(JobpoolTask)][
    len(dataclasses.fields(Task)) :
]
OF_ONE_JOB = tuple(_OPTIONS[: _OPTIONS.index("aliases")])
"""Options of one job: ``using(...)``."""
DECLARED = tuple(_OPTIONS[_OPTIONS.index("timeout") :])
"""Options of all jobs of a task: ``@task(...)``, and ``OPTIONS`` of the backend."""
_LIMITS = (
    *("timeout", "soft_timeout", "memory"),
    *("memory_growth", "memory_soft", "heartbeat_timeout"),
)
_POLICY = ("max_attempts", "retry", "max_crashes", "crash_window")


def given(task: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the options that a task has of those named; a plain `Task` has none."""
    values = {name: getattr(task, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def check(task: Any) -> None:
    """Refuse a task's options that are wrong.

    Raises:
        InvalidTask: one is; the message names it.
    """
    if not isinstance(task, JobpoolTask):
        return
    try:
        read_options(**given(task, OF_ONE_JOB))
        check_declared(given(task, DECLARED))
    except (ConfigError, UsageError) as exc:
        raise InvalidTask(f"{task.module_path}: {exc}") from None


def check_declared(options: Mapping[str, Any]) -> None:
    """Refuse options of all jobs of a task that are wrong.

    Raises:
        ConfigError: one is; the message names it.
    """
    read_limits(**{name: options.get(name) for name in _LIMITS})
    read_policy(
        **{name: options.get(name) for name in _POLICY},
        rerun=options.get("rerun", "always"),
    )
