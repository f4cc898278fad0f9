"""What is done around attempts, what it can change, and what it cannot."""

from contextlib import contextmanager, nullcontext, suppress

import pytest

from jobpool import ConfigError, Enqueuing, JobPool, Snooze, UsageError
from jobpool.core.application.handler_spec import HOOK_DEAD
from jobpool.errors import ArgumentsMisfit
from support.store.client_fakes import FakeStore, FlowStore, adder, pool_with

MAX = 2**20


@pytest.fixture
def jobs():
    return JobPool()


@pytest.fixture
def seen(jobs):
    """What has happened, in order; the handler `work` raises what it is named."""
    seen = []

    @jobs.job("cpu", kind="work")
    def work(wrong: str | None = None) -> int:
        seen.append("work")
        if wrong is not None:
            raise {"snooze": Snooze("1s"), "value": ValueError("no")}[wrong]
        return 7

    jobs.on_attempt_succeeded(lambda result: seen.append(("succeeded", result)))
    jobs.on_attempt_failed(lambda error: seen.append(("failed", type(error))))
    return seen


def around(jobs, seen, name, *, swallows=False, at_exit=None):
    @jobs.around_attempt
    @contextmanager
    def enter():
        seen.append(f"{name} begins")
        try:
            with suppress(Exception) if swallows else nullcontext():
                yield
        finally:
            seen.append(f"{name} ends")
        if at_exit:
            raise at_exit


def run(jobs, payload=b"{}"):
    return jobs.invoke("work", payload, MAX)


def test_the_first_is_the_outermost_and_who_is_told_comes_last(jobs, seen):
    around(jobs, seen, "outer")
    around(jobs, seen, "inner")
    assert run(jobs) == b"7"
    assert seen == [
        *("outer begins", "inner begins", "work", "inner ends", "outer ends"),
        ("succeeded", 7),
    ]


@pytest.mark.parametrize("payload", [b'{"wrong":"value"}', b'{"wrong":3}'])
def test_a_failure_passes_through_also_one_that_is_swallowed(jobs, seen, payload):
    """Also arguments that do not fit: the attempt fails with what was raised."""
    around(jobs, seen, "outer", swallows=True)
    with pytest.raises((ValueError, ArgumentsMisfit)) as caught:
        run(jobs, payload)
    assert seen[-2:] == ["outer ends", ("failed", caught.type)]


def test_what_a_context_manager_raises_the_attempt_has_raised(jobs, seen):
    """After a success too, of which nobody is told then."""
    around(jobs, seen, "outer", at_exit=KeyError("gone"))
    with pytest.raises(KeyError, match="gone"):
        run(jobs)
    assert seen == ["outer begins", "work", "outer ends", ("failed", KeyError)]


def test_one_that_cannot_begin_fails_the_attempt_and_ends_those_before(jobs, seen):
    """Even if one of those would swallow that."""
    around(jobs, seen, "outer", swallows=True)

    @jobs.around_attempt
    @contextmanager
    def broken():
        raise ConnectionError("no server")
        yield

    with pytest.raises(ConnectionError, match="no server"):
        run(jobs)
    assert seen == ["outer begins", "outer ends", ("failed", ConnectionError)]


def test_a_snooze_is_no_failure(jobs, seen):
    with pytest.raises(Snooze):
        run(jobs, b'{"wrong":"snooze"}')
    assert seen == ["work"]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
@pytest.mark.parametrize("wrong", [None, "value"])
def test_who_is_told_cannot_change_the_end(jobs, seen, wrong, error, capsys):
    """What it raises is printed, and the others are told."""

    def broken(_what):
        raise error("cannot tell")

    jobs.on_attempt_succeeded(broken)
    jobs.on_attempt_failed(broken)
    jobs.on_attempt_succeeded(lambda _: seen.append("told"))
    jobs.on_attempt_failed(lambda _: seen.append("told"))
    payload = b'{"wrong":"value"}' if wrong else b"{}"
    with pytest.raises(ValueError, match="no") if wrong else nullcontext():
        assert run(jobs, payload) == b"7"
    assert seen[-1] == "told"
    assert f"{error.__name__}: cannot tell" in capsys.readouterr().err


def test_hooks_of_dead_jobs_are_attempts_too(jobs, seen):
    around(jobs, seen, "outer")
    jobs.on_dead(lambda job: seen.append(job.id))
    facts = b'{"job":{"id":5,"kind":"k","pool":"cpu","state":"dead"}}'
    assert jobs.invoke(HOOK_DEAD, facts, MAX) == b"null"
    assert seen == ["outer begins", 5, "outer ends", ("succeeded", None)]


@pytest.mark.parametrize(
    ("hook", "function"),
    [
        ("around_attempt", lambda _: None),
        ("around_attempt", 7),
        ("on_attempt_succeeded", lambda: None),
        ("on_attempt_failed", lambda _a, _b: None),
        ("on_enqueue", lambda: None),
    ],
)
def test_what_cannot_be_called_like_this_is_refused(jobs, hook, function):
    with pytest.raises(ConfigError):
        getattr(jobs, hook)(function)


def test_what_returns_no_context_manager_fails_with_a_remedy(jobs, seen):
    jobs.around_attempt(lambda: 7)
    with pytest.raises(ConfigError, match="@contextmanager"):
        run(jobs)


def test_on_enqueue_hears_of_each_job_before_it_is_stored():
    """One by one, many, and a flow's; with arguments as plain JSON."""
    store = FlowStore()
    jobs = pool_with(store)
    add = adder(jobs)
    heard = []
    assert jobs.on_enqueue(heard.append) == heard.append
    add.options(tenant="ada", key="k", priority=3).enqueue(1)
    jobs.enqueue_many([add.call(2), add.call(3)])
    jobs.enqueue_many(add, [{"a": 4}])
    flow = jobs.flow("sum")
    flow.add(add.call(5))
    flow.enqueue()
    assert heard[0] == Enqueuing(
        kind="add",
        pool="cpu",
        arguments={"a": 1},
        priority=3,
        key="k",
        tenant="ada",
    )
    assert [one.arguments["a"] for one in heard] == [1, 2, 3, 4, 5]


def test_what_on_enqueue_raises_refuses_the_call():
    store = FakeStore()
    jobs = pool_with(store)
    add = adder(jobs)

    @jobs.on_enqueue
    def has_tenant(job):
        if job.tenant is None:
            raise UsageError(f"{job.kind} needs a tenant")

    with pytest.raises(UsageError, match="add needs a tenant"):
        jobs.enqueue_many([add.options(tenant="a").call(1), add.call(2)])
    assert store.jobs == []
