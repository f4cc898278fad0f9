"""Hooks: when they run, with what, and how they affect each other."""

import msgspec
import pytest

from jobpool import ConfigError, DeadJob, GiveUp, JobPool
from jobpool.core.application.handler_spec import HOOK_DEAD, HOOK_QUARANTINED
from jobpool.sandbox.app_loader import Application

FACTS = {
    "id": 7,
    "kind": "shop.thumbnail",
    "pool": "cpu",
    "state": "dead",
    "outcome": "failed",
    "reason": "failure 5 of 5",
    "error_class": "ValueError",
    "error": "no",
}
PAYLOAD = msgspec.json.encode({"job": FACTS})


@pytest.fixture
def jobs():
    return JobPool()


def declare(jobs, **pools):
    for kind, pool in pools.items():
        jobs.job(pool, kind=kind)(lambda: None)


def test_a_jobpool_is_an_application(jobs):
    """It is found by its methods in a module."""
    assert isinstance(jobs, Application)


def test_hooks_are_internal_kinds_of_the_applications(jobs):
    """They run in io, if the application has it, and only if there are any."""
    declare(jobs, a="cpu", b="io")
    assert len(jobs.handler_specs()) == 2
    jobs.on_dead(print)
    jobs.on_quarantine(print)
    hooks = jobs.handler_specs()[2:]
    assert [(spec.kind, spec.pool) for spec in hooks] == [
        (HOOK_DEAD, "io"),
        (HOOK_QUARANTINED, "io"),
    ]


def test_without_io_the_first_pool_by_name_runs_hooks(jobs):
    """Every process of the application chooses the same one."""
    declare(jobs, a="zeta", b="alpha")
    jobs.on_dead(print)
    assert jobs.handler_specs()[-1].pool == "alpha"


def test_hooks_without_handlers_have_no_effect(jobs):
    """There is no pool to run them in, and no job that could end."""
    jobs.on_dead(print)
    assert jobs.handler_specs() == ()


def test_a_hook_receives_the_facts(jobs):
    """A decorated function stays unchanged and gets one record."""
    seen = []

    @jobs.on_dead
    def notify(job):
        seen.append(job)

    assert jobs.invoke(HOOK_DEAD, PAYLOAD, 100) == b"null"
    notify("again")
    assert seen == [DeadJob(**FACTS), "again"]


@pytest.mark.parametrize(
    ("payload", "arguments"),
    [
        (b'{"path":"a.png","sizes":[1,2]}', {"path": "a.png", "sizes": [1, 2]}),
        (b"{}", {}),
        (b"[1]", None),
        (b"\xff\x00", None),
        (b"[" * 100_000, None),
    ],
)
def test_a_hook_receives_the_arguments(jobs, payload, arguments):
    """As they were stored, whatever they are: the hook runs all the same."""
    seen = []
    jobs.on_dead(seen.append)
    facts = {**FACTS, "key": "evt-1", "tenant": "ada", "payload": payload}
    jobs.invoke(HOOK_DEAD, msgspec.json.encode({"job": facts}), 100)
    more = {"key": "evt-1", "tenant": "ada", "arguments": arguments}
    assert seen == [DeadJob(**FACTS, **more)]


def test_hooks_run_in_order_and_an_error_stops_none(jobs):
    """A broken hook does not silence the others; its error fails the attempt."""
    ran = []

    @jobs.on_quarantine
    def first(job):
        ran.append("first")
        raise ValueError("broken")

    @jobs.on_quarantine
    async def second(job):
        ran.append("second")

    with pytest.raises(ValueError, match="broken"):
        jobs.invoke(HOOK_QUARANTINED, PAYLOAD, 100)
    assert ran == ["first", "second"]


def test_several_hook_errors_are_raised_together(jobs):
    """None is lost."""

    def broken(job):
        raise ValueError(job.id)

    jobs.on_dead(broken)
    jobs.on_dead(broken)
    with pytest.raises(ExceptionGroup, match="2 functions of jobpool:on_dead raised"):
        jobs.invoke(HOOK_DEAD, PAYLOAD, 100)


def test_a_foreign_payload_gives_up(jobs):
    """A row written by hand is not retried."""
    jobs.on_dead(print)
    with pytest.raises(GiveUp, match="argument 'job'"):
        jobs.invoke(HOOK_DEAD, b'{"job":{"id":"SECRET"}}', 100)


def test_child_start_hooks_run_in_order(jobs):
    """The first error ends it."""
    ran = []
    jobs.on_child_start(lambda: ran.append(1))

    @jobs.on_child_start
    async def connect():
        ran.append(2)

    jobs.on_child_start(lambda: 1 / 0)
    jobs.on_child_start(lambda: ran.append(4))
    with pytest.raises(ZeroDivisionError):
        jobs.start_child()
    assert ran == [1, 2]


@pytest.mark.parametrize("function", [5, lambda: None, lambda a, b: None])
@pytest.mark.parametrize("hook", ["on_dead", "on_quarantine"])
def test_a_hook_with_the_wrong_signature_is_refused(jobs, hook, function):
    """It would fail when it is needed most."""
    with pytest.raises(ConfigError, match=r"one argument|must be a function"):
        getattr(jobs, hook)(function)


def test_a_child_start_hook_takes_no_argument(jobs):
    """There is nothing to pass to it."""
    with pytest.raises(ConfigError, match="no argument"):
        jobs.on_child_start(lambda job: None)
