"""Schedules that an application's code declares."""

import datetime as dt

import pytest

import jobpool
from jobpool.core.rules.schedules.policy import Missed, Overlap, Policy
from jobpool.core.rules.schedules.rule import Rule
from jobpool.errors import ArgumentsRejected, ConfigError

HOUR_MS = 3_600_000


@pytest.fixture
def jobs():
    return jobpool.JobPool("memory:")


@pytest.fixture
def poll(jobs):
    @jobs.job("io", kind="poll")
    def poll(region: str, page: int = 1) -> None: ...

    return poll


def test_a_handler_runs_at_the_times_of_the_expression_above_it(jobs):
    """It can still be called and enqueued; the schedule bears its kind's name."""

    @jobs.cron("0 2 * * *", tz="Europe/Berlin", overlap="buffer_one")
    @jobs.job("cpu", kind="report.nightly")
    def nightly(scope: str = "all") -> str:
        return scope

    assert nightly("one") == "one"
    (declared,) = jobs.declared_schedules()
    assert (declared.name, declared.kind, declared.pool) == (
        "report.nightly",
        "report.nightly",
        "cpu",
    )
    assert declared.payload == b"{}"
    assert declared.rule == Rule(cron="0 2 * * *", tz="Europe/Berlin")
    assert declared.policy == Policy(overlap=Overlap.BUFFER_ONE)


def test_a_handler_may_have_several_expressions(jobs):
    """Each with a name of its own."""

    @jobs.cron("0 12 * * *", name="noon")
    @jobs.cron("@daily", name="midnight")
    @jobs.job("io", kind="look")
    def look(*rest: int, **more: int) -> None: ...

    assert {one.name for one in jobs.declared_schedules()} == {"noon", "midnight"}
    with pytest.raises(ConfigError, match="'noon' is declared twice"):
        jobs.cron("0 13 * * *", name="noon")(look)


def test_annotations_may_name_what_is_defined_further_down(jobs):
    """They are read when the application has been imported."""

    @jobs.cron("@hourly")
    @jobs.job("io", kind="look")
    def look(at: "Later | None" = None) -> None: ...

    class Later: ...

    look.__wrapped__.__globals__["Later"] = int
    try:
        assert jobs.declared_schedules()[0].payload == b"{}"
    finally:
        del look.__wrapped__.__globals__["Later"]


@pytest.mark.parametrize("function", [len, lambda scope="all": scope])
def test_the_reverse_order_of_decorators_is_refused(jobs, function):
    """A schedule needs a handler; one that was skipped would never run."""
    with pytest.raises(ConfigError, match=r"above @jobs\.job.*exchange the two lines"):
        jobs.cron("@daily")(function)
    assert jobs.declared_schedules() == ()


def test_a_handler_with_required_arguments_is_refused(jobs, poll):
    """An expression says no arguments."""
    with pytest.raises(ConfigError, match="poll needs the argument 'region'"):
        jobs.cron("@daily")(poll)


def test_a_call_is_scheduled_with_its_options(jobs, poll):
    """They are those of each of its jobs."""
    call = poll.options(
        priority=-5,
        tenant="acme",
        max_attempts=2,
        timeout="30s",
        memory="64MiB",
        expires_in="1h",
    ).call("eu")
    jobs.schedule(
        "poll.eu",
        call,
        every="1h",
        from_="end",
        starts=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        ends=4_000_000_000,
        pause_on_dead=True,
    )
    (declared,) = jobs.declared_schedules()
    assert declared.payload == b'{"region":"eu"}'
    assert declared.rule == Rule(
        every_ms=HOUR_MS,
        from_end=True,
        starts_ms=1_767_225_600_000,
        ends_ms=4_000_000_000_000,
    )
    assert declared.policy == Policy(pause_on_dead=True)
    assert (declared.priority, declared.tenant, declared.max_attempts) == (
        -5,
        "acme",
        2,
    )
    assert (declared.timeout_s, declared.memory_bytes) == (30, 64 * 2**20)
    assert declared.expires_in_ms == HOUR_MS


def test_every_option_of_a_policy_is_read(jobs, poll):
    """As text or a number, as elsewhere."""
    jobs.schedule(
        "poll",
        poll.call("eu"),
        every="1h",
        jitter="5m",
        missed="all",
        catchup_window="2h",
        catchup_max=3,
        overlap="allow_all",
        retry_over_tick=True,
        tenant="acme",
    )
    (declared,) = jobs.declared_schedules()
    assert declared.rule == Rule(every_ms=HOUR_MS, jitter_ms=300_000)
    assert declared.policy == Policy(
        missed=Missed.ALL,
        catchup_window_s=7200,
        catchup_max=3,
        overlap=Overlap.ALLOW_ALL,
        retry_over_tick=True,
    )
    assert declared.tenant == "acme"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "got neither"),
        ({"every": "1h", "cron": "@daily"}, "got both"),
        ({"every": "0s"}, "every: 0 is too short"),
        ({"every": "0.5s"}, "every=500ms is out of range"),
        ({"cron": 5}, "cron: expected text, got int"),
        ({"cron": "0 0 31 2 *"}, "0 0 31 2"),
        ({"cron": "@daily", "tz": "Europe/Berln"}, "did you mean 'Europe/Berlin'"),
        ({"cron": "@daily", "tz": 5}, "tz: expected text, got int"),
        ({"cron": "@daily", "from_": "end"}, "counts a period"),
        ({"every": "1h", "from_": "start"}, 'from_: expected "end"'),
        ({"every": "1h", "jitter": "1h"}, "is not below the period"),
        ({"every": "1h", "starts": "now"}, "starts: expected an aware datetime"),
        ({"every": "1h", "ends": dt.datetime(2026, 1, 1)}, "ends: .* no time zone"),  # noqa: DTZ001 - refused for it
        ({"every": "1h", "missed": "none"}, 'missed: .none. is unknown.*"skip"'),
        ({"every": "1h", "overlap": 1}, 'overlap: .1. is unknown.*"buffer_one"'),
        ({"every": "1h", "catchup_max": True}, "catchup_max: expected a whole number"),
        ({"every": "1h", "catchup_max": 0}, "catchup_max=0 is out of range"),
        ({"every": "1h", "catchup_window": "1s"}, "catchup_window=1s is out of range"),
        ({"every": "1h", "pause_on_dead": 1}, "pause_on_dead: expected True or False"),
        ({"every": "1h", "tenant": ""}, "tenant: 0 characters"),
        ({"evry": "1h"}, "it has no option 'evry'.*every"),
    ],
)
def test_a_wrong_option_is_refused_by_name(jobs, poll, options, what):
    """At import, with the schedule's name; nothing is declared."""
    with pytest.raises(ConfigError, match=rf"(?s)schedule 'poll'.*{what}"):
        jobs.schedule("poll", poll.call("eu"), **options)
    assert jobs.declared_schedules() == ()


@pytest.mark.parametrize(
    "option", [{"key": "a"}, {"unique": "a"}, {"run_in": "1s"}, {"run_at": 5e9}]
)
def test_options_for_one_job_are_refused(jobs, poll, option):
    """Each tick makes another job."""
    call = poll.options(**option).call("eu")
    with pytest.raises(ConfigError, match=f"has {next(iter(option))}=, which is for"):
        jobs.schedule("poll", call, every="1h")


def test_a_call_on_a_connection_is_refused(jobs, poll):
    """Its transaction is over when the tick comes."""
    with pytest.raises(ConfigError, match="connection="):
        jobs.schedule("poll", poll.options(connection=object()).call("eu"), every="1h")


@pytest.mark.parametrize("name", ["", "a b", "ö", "a" * 201, "-a", "a\n", 5, None])
def test_a_name_that_cannot_be_shown_or_typed_is_refused(jobs, poll, name):
    """It is an argument of commands."""
    with pytest.raises(ConfigError, match="name"):
        jobs.schedule(name, poll.call("eu"), every="1h")


@pytest.mark.parametrize("call", [None, "poll", print])
def test_only_calls_are_scheduled(jobs, call):
    """A handler alone says no arguments."""
    with pytest.raises(ConfigError, match=r"needs a call, such as handler\.call"):
        jobs.schedule("poll", call, every="1h")


def test_defaults_that_do_not_fit_are_refused_when_schedules_are_read(jobs):
    """Not at import: types may be known only afterwards."""

    @jobs.cron("@daily")
    @jobs.job("io", kind="look")
    def look(text: str = "x" * 2**21) -> None: ...

    assert jobs.declared_schedules()[0].payload == b"{}"
    jobs.schedule("fits", look.call("y"), every="1h")
    with pytest.raises(ArgumentsRejected):
        jobs.schedule("too large", look.call("x" * 2**24), every="1h")
