"""What a child does for a task: its context, its signals, Django's connections."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import reset_queries
from django.utils import timezone

from jobpool.client.invoke.hooks import DeadJob
from jobpool.core.application.current import RUN_VARIABLE, current
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import JobUnsuccessful
from jobpool.integrations.django.compat import (
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from jobpool.integrations.django.database import drop_connections
from jobpool.integrations.django.jobs import DjangoJobs
from jobpool.integrations.django.words.arguments import Parameters
from jobpool.integrations.django.words.results import UNKNOWN_WORKER, task_error


def runner(
    sender: type, jobs: DjangoJobs, task: Any, parameters: Parameters
) -> Callable[..., Any]:
    """Return the function that is the handler of a task.

    Args:
        sender: of the signals.
        jobs: the task's `JobPool`.
        task: as its module declares it.
        parameters: the task's.
    """
    signature = parameters.signature

    def begun(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """Return the result that is to be, and what the function is called with."""
        bound = signature.bind(*args, **kwargs)
        given: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            given |= value if kind is kind.VAR_KEYWORD else {name: value}
        passed, named = parameters.passed(given)
        result = jobs.running(task, current().id, (passed, named))
        _begin(result)
        context = [TaskContext(task_result=result)] if task.takes_context else []
        return result, [*context, *passed], named

    def run(*args: Any, **kwargs: Any) -> Any:
        with _own_connections():
            result, passed, named = begun(args, kwargs)
            task_started.send(sender=sender, task_result=result)
            value = normalize_json(task.func(*passed, **named))
            _end(result, value)
            task_finished.send(sender=sender, task_result=result)
            return value

    async def run_async(*args: Any, **kwargs: Any) -> Any:
        # The thread in which Django's synchronous parts run ends with the attempt.
        async with ThreadSensitiveContext():
            try:
                result, passed, named = begun(args, kwargs)
                await task_started.asend(sender=sender, task_result=result)
                value = normalize_json(await task.func(*passed, **named))
                _end(result, value)
                await task_finished.asend(sender=sender, task_result=result)
                return value
            finally:
                await sync_to_async(_drop_own)()

    function: Callable[..., Any] = run_async if iscoroutinefunction(task.func) else run
    same = ("__module__", "__name__", "__qualname__", "__doc__")
    functools.update_wrapper(function, task.func, assigned=same, updated=())
    del function.__wrapped__  # type: ignore[attr-defined] # its annotations are Django's
    function.__signature__ = signature  # type: ignore[attr-defined] # inspect reads it
    function.__annotations__ = {}
    return function


def tell_of_death(sender: type, jobs: DjangoJobs) -> Callable[[DeadJob], None]:
    """Return the hook that sends ``task_finished`` for a job that has failed for good.

    Not the attempt itself: its process may be gone, and only the supervisor knows
    whether the job will be tried again.
    """

    def finished(dead: DeadJob) -> None:
        registered = jobs.named(dead.kind)
        if registered is None:
            return
        with _own_connections():
            passed = registered.parameters.passed(dead.arguments or {})
            result = jobs.running(registered.task, dead.id, passed)
            outcome = Outcome(dead.outcome) if dead.outcome else None
            why = dead.reason or dead.error or dead.state
            _set(result, status=TaskResultStatus.FAILED)
            result.errors[:] = [task_error(outcome, dead.error_class, why)]
            error = JobUnsuccessful(
                f"job {dead.id} ({dead.kind}) is {dead.state}: {why}",
                job_id=dead.id,
                state=dead.state,
                outcome=dead.outcome,
                error_class=dead.error_class,
            )
            try:
                # Receivers log ``sys.exc_info()``, as Django's own does.
                raise error
            except JobUnsuccessful:
                task_finished.send(sender=sender, task_result=result)

    return finished


def _begin(result: Any) -> None:
    """Set what the store does not know yet of an attempt that has just begun."""
    now = timezone.now()
    _set(result, status=TaskResultStatus.RUNNING, last_attempted_at=now)
    if result.started_at is None:
        _set(result, started_at=now)
    missing = current().attempt - len(result.worker_ids)
    result.worker_ids.extend([UNKNOWN_WORKER] * missing)


def _end(result: Any, value: Any) -> None:
    _set(
        result,
        status=TaskResultStatus.SUCCESSFUL,
        finished_at=timezone.now(),
        _return_value=value,
    )


def _set(result: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)  # as Django's own backends do


@contextmanager
def _own_connections() -> Iterator[None]:
    """Let an attempt begin with no connection of an earlier one, and leave none."""
    reset_queries()
    try:
        yield
    finally:
        _drop_own()


def _drop_own() -> None:
    """Drop this thread's connections, unless they are a test's own."""
    if RUN_VARIABLE in os.environ:
        drop_connections()
