"""What the words of Celery, RQ and Huey are called here, for whoever types them.

Somebody who moves over writes them from memory, and the nearest of our own words would
mislead: ``max_retries`` is not ``max_crashes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PAGES = "(see: jobpool manual celery, or rq, or huey)"
_LATER = "handler.options(run_in='5m') or run_at=, of each job"
_QUOTA = (
    'declare a quota, vendor = jobs.quota("vendor", rate="10/s"), and name it: '
    "quotas=[vendor]"
)
_RETRY = 'retry={ConnectionError: ["10s", "1m"]}, by class, with the delays'
_TRIES = "max_attempts, which counts the first attempt too: 3 retries are 4"
_CURRENT = "jobpool.current(), in the handler"
_HOOK = "a hook: @jobs.on_dead, @jobs.on_attempt_succeeded, or a flow's"
_ALWAYS = 'always on; for the opposite there is rerun="never"'
_OF_A_JOB = "an option of each job: handler.options({}=...).enqueue(...)"
_SCHEDULE = '@jobs.cron("0 2 * * *") above the handler, or jobs.schedule(...)'

OF_HANDLERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("rate", "rate_limit", "throttle", "limit", "burst", "per"), _QUOTA
    ),
    **dict.fromkeys(("bind", "context"), _CURRENT),
    **dict.fromkeys(("retries", "max_retries"), _TRIES),
    **dict.fromkeys(
        (
            "autoretry_for",
            "dont_autoretry_for",
            "throws",
            "retry_kwargs",
            "retry_delay",
            "default_retry_delay",
            "retry_backoff",
            "retry_backoff_max",
            "retry_jitter",
        ),
        _RETRY,
    ),
    **dict.fromkeys(("time_limit", "job_timeout"), "timeout"),
    "soft_time_limit": "soft_timeout",
    "queue": 'the first argument, the pool: @jobs.job("cpu")',
    **dict.fromkeys(("name", "task_name"), "kind"),
    "base": "@jobs.around_attempt and @jobs.on_child_start, for all handlers",
    **dict.fromkeys(("on_failure", "on_success"), _HOOK),
    **dict.fromkeys(("acks_late", "reject_on_worker_lost"), _ALWAYS),
    **dict.fromkeys(("ignore_result", "track_started"), "not needed: leave it out"),
    **dict.fromkeys(
        ("result_ttl", "failure_ttl", "result_expires"), "[retention] in jobpool.toml"
    ),
    "serializer": "always JSON, by the annotations",
    **dict.fromkeys(("cron", "crontab", "schedule", "every"), _SCHEDULE),
    **{
        word: _OF_A_JOB.format(word)
        for word in (
            "priority",
            "run_in",
            "run_at",
            "expires_in",
            "key",
            "unique",
            "tenant",
        )
    },
    "expires": _OF_A_JOB.format("expires_in"),
}
"""Of ``@jobs.job``: what stands for an option of another system's decorator."""

OF_CALLS: Mapping[str, str] = {
    "delay": "handler.enqueue(...)",
    "apply_async": "handler.options(run_in=...).enqueue(...)",
    "enqueue_in": _LATER,
    "enqueue_at": _LATER,
    "schedule": _LATER,
    "apply": "jobpool.testing.run_now(handler, ...)",
    "call_local": "handler(...), which calls the function",
    "map": "jobs.enqueue_many(handler.call(one) for one in ...)",
    "starmap": "jobs.enqueue_many(handler.call(*one) for one in ...)",
    "chunks": "jobs.enqueue_many(handler.call(*one) for one in ...)",
    "s": "handler.call(...), or in a chain handler.rest(...)",
    "si": "handler.call(...), in a flow",
    "signature": "handler.call(...), in a flow",
    "subtask": "handler.call(...), in a flow",
    "then": "jobs.chain(handler.call(...)).then(other.rest())",
    "retry": 'raise jobpool.RetryLater("1m")',
    "update_state": "jobpool.current().heartbeat(progress=...)",
    "request": "jobpool.current()",
    "revoke": "jobs.cancel(id), or job.cancel()",
    "AsyncResult": "jobs.get(id)",
}
"""Of handlers: what stands for a method of another system's tasks."""


OF_POOLS: Mapping[str, str] = {
    **dict.fromkeys(("task", "actor"), '@jobs.job("cpu") above a function'),
    **dict.fromkeys(("enqueue", "enqueue_call", "send_task"), "handler.enqueue(...)"),
    **dict.fromkeys(("enqueue_in", "enqueue_at"), _LATER),
    **dict.fromkeys(("periodic_task", "add_periodic_task"), _SCHEDULE),
    **dict.fromkeys(("lock_task", "rate_limit"), _QUOTA),
    **dict.fromkeys(("AsyncResult", "result", "fetch_job"), "jobs.get(id)"),
    **dict.fromkeys(("revoke", "revoke_by_id"), "jobs.cancel(id)"),
    "on_startup": "@jobs.on_child_start",
    "signal": "a hook, such as @jobs.on_dead or @jobs.on_attempt_failed",
    "conf": "jobpool.toml: see jobpool manual pools",
}
"""Of ``JobPool``: what stands for a method of another system's application."""


def missing(owner: object, name: str, known: Mapping[str, str]) -> Any:
    """Raise what ``owner.name`` raises, for ``__getattr__``.

    Args:
        owner: has no such attribute, or a property of it has raised.
        name: as somebody has typed it.
        known: one of the tables above.

    Raises:
        AttributeError: always; it says what another system's word is here.
    """
    if hint := words_for(name, known):
        said = f"{type(owner).__name__!r} object has no attribute {name!r}; {hint}"
        raise AttributeError(said, name=name, obj=owner)
    return object.__getattribute__(owner, name)  # raises, with its own words


def words_for(word: str, known: Mapping[str, str]) -> str | None:
    """Return what stands here for another system's word; None: it is none of theirs.

    Args:
        word: as somebody has typed it.
        known: one of the tables above.
    """
    here = known.get(word)
    return None if here is None else f"here it is {here} {_PAGES}"
