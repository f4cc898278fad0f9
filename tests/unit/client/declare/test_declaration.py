"""What a decorator and ``.options`` may say, and what they refuse by name."""

import datetime as dt
import functools
import inspect
import math

import pytest

from jobpool import ConfigError, GiveUp, JobPool, Retry, UsageError
from jobpool.client.declare.elsewhere import OF_CALLS, OF_HANDLERS, OF_POOLS
from jobpool.client.declare.options import read_options
from jobpool.client.handler import Handler
from jobpool.core.jobs.job import Debounce, OnConflict
from jobpool.core.rules.limits import Limits
from jobpool.core.rules.policy import Policy, Rerun, RetryRule

HUGE = 10**5000


class VendorDown(Exception):
    pass


def declared(**kwargs):
    jobs = JobPool()

    @jobs.job("cpu", **kwargs)
    def handler() -> None: ...

    return handler.spec


def handler():
    @JobPool().job("cpu", kind="k")
    def one() -> None: ...

    return one


def named(name="f", module="shop"):
    def function(): ...

    function.__qualname__ = function.__name__ = name
    function.__module__ = module
    return function


def test_unset_options_have_the_defaults():
    """A bare decorator declares the policy's defaults and no limit of its own."""
    spec = declared(kind="k")
    assert (spec.kind, spec.pool, spec.aliases) == ("k", "cpu", ())
    assert spec.limits == Limits()
    assert spec.policy == Policy()


def test_every_option_is_declared():
    """Durations and sizes are parsed; retry rules are kept by class name."""
    spec = declared(
        kind="k",
        aliases=["old"],
        timeout="30s",
        soft_timeout=dt.timedelta(seconds=20),
        memory="512MiB",
        max_attempts=7,
        max_crashes=2,
        crash_window="1h",
        heartbeat_timeout=5,
        rerun="never",
        retry={
            ValueError: "never",
            "shop.Down": ["10s", 60],
            VendorDown: Retry(["1s"], max_attempts=20),
            GiveUp: Retry(max_attempts=2),
        },
    )
    assert spec.aliases == ("old",)
    assert spec.limits == Limits(
        timeout_s=30,
        soft_timeout_s=20,
        memory_bytes=512 * 2**20,
        heartbeat_timeout_s=5,
    )
    assert spec.policy == Policy(
        max_attempts=7,
        max_crashes=2,
        crash_window_s=3600,
        rerun=Rerun.NEVER,
        retry={
            "ValueError": RetryRule(never=True),
            "shop.Down": RetryRule(delays_s=(10, 60)),
            f"{__name__}.VendorDown": RetryRule(delays_s=(1,), max_attempts=20),
            "jobpool.errors.GiveUp": RetryRule(max_attempts=2),
        },
    )


WRONG = [
    ({"timeout": "soon"}, "timeout: 'soon' is not a duration"),
    ({"timeout": -1}, "timeout: -1 is out of range"),
    ({"timeout": math.nan}, "timeout: nan is out of range"),
    ({"timeout": 0}, "timeout: 0 is too short"),
    ({"timeout": True}, "timeout: expected a duration"),
    ({"timeout": HUGE}, "timeout: .*out of range"),
    ({"soft_timeout": "1s", "timeout": "1s"}, "soft_timeout: 1 s is not below timeout"),
    ({"memory": "lots"}, "memory: 'lots' is not a size"),
    ({"memory": 0}, "memory: 0 is out of range"),
    ({"memory": HUGE}, "memory: .*out of range"),
    ({"memory": 1.5}, "memory: expected a size"),
    ({"heartbeat_timeout": math.inf}, "heartbeat_timeout: inf is out of range"),
    ({"crash_window": 0}, "crash_window: 0 is too short"),
    ({"max_attempts": 0}, "max_attempts is out of range; expected 1 to 1000"),
    ({"max_attempts": HUGE}, "max_attempts is out of range"),
    ({"max_attempts": 2.0}, "max_attempts: expected a whole number, got float"),
    ({"max_attempts": True}, "max_attempts: expected a whole number, got bool"),
    ({"max_crashes": -1}, "max_crashes is out of range"),
    ({"rerun": "sometimes"}, 'rerun: .* expected "always", or "never"'),
    ({"rerun": None}, "rerun: 'None' is unknown"),
    ({"retry": ["never"]}, "retry: expected a dict"),
    ({"retry": {int: "never"}}, "is not an exception class"),
    ({"retry": {"not a name": "never"}}, "'not a name' is not an exception class"),
    ({"retry": {ValueError: "always"}}, "rule for ValueError is invalid"),
    ({"retry": {ValueError: 10}}, "rule for ValueError is invalid"),
    ({"retry": {ValueError: []}}, "the list is empty"),
    ({"retry": {ValueError: ["soon"]}}, r"Retry\(delays=\): 'soon' is not a duration"),
    ({"retry": {ValueError: "never", "ValueError": "never"}}, "is given twice"),
    ({"kind": "white space"}, "kind 'white space' is not a valid name"),
    ({"kind": ""}, "kind '' is not a valid name"),
    ({"kind": 5}, "kind: expected text, got int"),
    ({"kind": "jobpool:on_dead"}, "reserved for jobpool's own jobs"),
    ({"aliases": "old"}, r"aliases: expected a list .* write \['old'\]"),
    ({"aliases": ["jobpool:x"]}, "reserved for jobpool's own jobs"),
]


@pytest.mark.parametrize(("given", "says"), WRONG)
def test_a_wrong_value_is_refused_at_the_decorator(given, says):
    """The message names the argument; nothing is registered."""
    jobs = JobPool()
    with pytest.raises(ConfigError, match=says):
        jobs.job("cpu", **({"kind": "k"} | given))(named())
    assert jobs.handler_specs() == ()


@pytest.mark.parametrize(
    ("pool", "says"),
    [
        ("CPU", "pool 'CPU' is not a valid name"),
        ("", "pool '' is not a valid name"),
        (named(), "with parentheses"),
        (None, "pool: expected its name, got NoneType"),
    ],
)
def test_a_wrong_pool_is_refused(pool, says):
    """Forgotten parentheses are recognised."""
    with pytest.raises(ConfigError, match=says):
        JobPool().job(pool)


@pytest.mark.parametrize(
    ("delays", "budget", "for_"),
    [
        ("10s", None, None),
        (5, None, None),
        ([1], 0, None),
        (None, 3, "2h"),
        (None, None, 0),
        (None, None, "soon"),
    ],
)
def test_a_wrong_retry_is_refused(delays, budget, for_):
    """Retry checks its arguments where it is written."""
    with pytest.raises(ConfigError, match="Retry"):
        Retry(delays, max_attempts=budget, for_=for_)


def test_a_class_may_be_retried_for_a_time():
    """However many failures that are."""
    assert Retry(["1m"], for_="2h").rule == RetryRule(delays_s=(60.0,), for_s=7200.0)


def test_the_default_kind_is_module_and_name():
    """A kind is stable as long as the function keeps its place."""
    assert JobPool().job("cpu")(named()).kind == "shop:f"


def test_a_script_is_named_as_the_supervisor_imports_it(monkeypatch):
    """``python jobs.py`` enqueues kinds of the module ``jobs``."""
    import __main__

    monkeypatch.setattr(__main__, "__spec__", None)
    monkeypatch.setattr(__main__, "__file__", "/srv/jobs.py", raising=False)
    assert JobPool().job("cpu")(named(module="__main__")).kind == "jobs:f"


def test_a_module_run_as_a_script_keeps_its_name(monkeypatch):
    """``python -m shop.jobs`` enqueues kinds of the module ``shop.jobs``."""
    import __main__

    spec = type("Spec", (), {"name": "shop.jobs"})
    monkeypatch.setattr(__main__, "__spec__", spec)
    assert JobPool().job("cpu")(named(module="__main__")).kind == "shop.jobs:f"


def test_an_interactive_function_needs_a_kind(monkeypatch):
    """No other process can import what was typed at a prompt."""
    import __main__

    monkeypatch.setattr(__main__, "__spec__", None)
    monkeypatch.delattr(__main__, "__file__", raising=False)
    with pytest.raises(ConfigError, match=r'kind="shop\.thumbnail"'):
        JobPool().job("cpu")(named(module="__main__"))


@pytest.mark.parametrize(
    "function",
    [lambda: None, functools.partial(named()), named("größe"), named("f.<locals>.g")],
)
def test_a_function_without_a_stable_name_needs_a_kind(function):
    """With a kind of its own each of them is accepted."""
    with pytest.raises(ConfigError, match=r'kind="shop\.thumbnail"'):
        JobPool().job("cpu")(function)
    assert JobPool().job("cpu", kind="k")(function).kind == "k"


def generator():
    yield 1


async def async_generator():
    yield 1


@pytest.mark.parametrize("function", [generator, async_generator, int, 5, None])
def test_a_function_whose_call_would_not_run_is_no_handler(function):
    """A generator's body would never run; a class is not a function."""
    with pytest.raises(ConfigError, match=r"generator|must be a function"):
        JobPool().job("cpu", kind="k")(function)


@pytest.mark.parametrize(
    "given", [{"kind": "a"}, {"kind": "old"}, {"kind": "c", "aliases": ["a"]}]
)
def test_a_kind_belongs_to_one_handler(given):
    """A second handler of a kind or alias is refused, and the first one stays."""
    jobs = JobPool()
    jobs.job("cpu", kind="a", aliases=["old"])(named())
    with pytest.raises(ConfigError, match="is taken by <Handler a in pool cpu>"):
        jobs.job("io", **given)(named("g"))
    assert [spec.kind for spec in jobs.handler_specs()] == ["a"]


def test_options_are_read():
    """Relative times become milliseconds, texts are kept."""
    options = read_options(
        run_in="1.5s",
        expires_in=dt.timedelta(minutes=1),
        priority=-5,
        key="k",
        unique="u",
        tenant="t",
        max_attempts=3,
        timeout="2s",
        memory="1MiB",
    )
    assert (options.delay_ms, options.expires_in_ms) == (1500, 60_000)
    assert (options.key, options.unique, options.tenant) == ("k", "u", "t")
    assert (options.max_attempts, options.timeout_s) == (3, 2)
    assert (options.priority, options.memory_bytes) == (-5, 2**20)


@pytest.mark.parametrize(
    ("run_at", "expected_ms"),
    [
        (0, 0),
        (1.5, 1500),
        (dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), 0),
        (dt.datetime.max.replace(tzinfo=dt.UTC), 253_402_300_799_000),
    ],
)
def test_run_at_is_a_datetime_or_unix_seconds(run_at, expected_ms):
    """Aware datetimes and Unix seconds, up to the end of year 9999."""
    assert expected_ms == read_options(run_at=run_at).run_at_ms


WRONG_OPTIONS = [
    ({"run_in": -1}, "run_in: -1 is out of range"),
    ({"run_in": math.nan}, "run_in: nan is out of range"),
    ({"run_in": False}, "run_in: expected a duration"),
    ({"run_in": HUGE}, "run_in: .*out of range"),
    ({"run_in": "5m", "run_at": 5}, "run_in and run_at are both given"),
    ({"run_in": 0, "run_at": 5}, "run_in and run_at are both given"),
    ({"run_at": -1}, "run_at is out of range"),
    ({"run_at": math.nan}, "run_at is out of range"),
    ({"run_at": math.inf}, "run_at is out of range"),
    ({"run_at": HUGE}, "run_at is out of range"),
    ({"run_at": 253_402_300_801}, "run_at is out of range"),
    ({"run_at": dt.datetime(2030, 1, 1)}, "no time zone; make it aware"),  # noqa: DTZ001 - the point
    ({"run_at": "tomorrow"}, "run_at: expected an aware datetime"),
    ({"run_at": True}, "run_at: expected an aware datetime"),
    ({"expires_in": 0}, "expires_in: 0 is too short"),
    ({"expires_in": -5}, "expires_in: -5 is out of range"),
    ({"priority": 40_000}, "priority is out of range"),
    ({"priority": HUGE}, "priority is out of range"),
    ({"priority": 1.0}, "priority: expected a whole number"),
    ({"key": ""}, "key: 0 characters; expected 1 to 255"),
    ({"key": "x" * 256}, "key: 256 characters"),
    ({"key": 5}, "key: expected text, got int"),
    ({"unique": "a\0b"}, "unique: a NUL character"),
    ({"tenant": "\ud800"}, "tenant: half a surrogate pair"),
    ({"max_attempts": 0}, "max_attempts is out of range"),
    ({"timeout": 0}, "timeout: 0 is too short"),
    ({"memory": "x"}, "memory: 'x' is not a size"),
    ({"on_conflict": "replace"}, "give unique= too"),
    ({"unique_until": "start"}, "give unique= too"),
    ({"unique": "u", "key": "k", "on_conflict": "replace"}, "do not go with key="),
    ({"unique": "u", "on_conflict": "overwrite"}, "'replace', 'postpone', got 'overw"),
    ({"unique": "u", "unique_until": "end"}, "'start', 'finish', got 'end'"),
    ({"unique": "u", "on_conflict": "postpone"}, "needs run_in"),
    (
        {"unique": "u", "on_conflict": "postpone", "run_in": "2m"},
        r"run_in \(2m00s\) is longer than postpone_max \(1m00s\)",
    ),
    (
        {"unique": "u", "on_conflict": "replace", "postpone_max": "1m"},
        "postpone_max is only for",
    ),
    ({"unique": "u", "postpone_max": "1m"}, "postpone_max is only for"),
]


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({}, None),
        ({"on_conflict": "keep", "unique_until": "finish"}, None),
        ({"unique_until": "start"}, Debounce(until_start=True)),
        ({"on_conflict": "replace"}, Debounce(OnConflict.REPLACE)),
        (
            {"on_conflict": "postpone", "run_in": "5s", "postpone_max": "2m"},
            Debounce(OnConflict.POSTPONE, postpone_max_ms=120_000),
        ),
    ],
)
def test_how_a_unique_text_is_shared_goes_with_the_job(given, means):
    """What is usual is not said."""
    handler = JobPool().job("cpu", kind="k")(named())
    chosen = handler.options(unique="u", **given).chosen
    assert handler.new_job(chosen).debounce == means


@pytest.mark.parametrize(("given", "says"), WRONG_OPTIONS)
def test_a_wrong_option_is_refused_by_name(given, says):
    """Nothing is enqueued with an invalid value."""
    handler = JobPool().job("cpu", kind="k")(named())
    with pytest.raises(UsageError, match=says):
        handler.options(**given)


@pytest.mark.parametrize("size", ["lots", 0, True, "9MiB"])
def test_a_wrong_payload_max_is_refused(size):
    """The limit is a size."""
    with pytest.raises(ConfigError, match="payload_max"):
        JobPool(payload_max=size)


@pytest.mark.parametrize(
    ("option", "here"),
    [
        ("bind", "jobpool.current"),
        ("max_retries", "max_attempts"),
        ("autoretry_for", "retry="),
        ("priority", r"handler\.options\(priority="),
        ("queue", "the pool"),
        ("expires", r"options\(expires_in="),
        ("timeuot", r"did you mean 'timeout'\?"),
    ],
)
def test_another_systems_word_in_a_decorator_is_refused_with_ours(option, here):
    """The nearest of our own words would mislead: max_retries is not max_crashes."""
    with pytest.raises(ConfigError, match=rf"no option '{option}'; .*{here}.*Nothing"):
        declared(kind="k", **{option: 1})


def test_another_systems_call_is_named_as_ours():
    """As an attribute that is not there, so that hasattr and copies find none."""
    with pytest.raises(AttributeError, match=r"'delay'; .*handler\.enqueue"):
        handler().delay()
    with pytest.raises(AttributeError, match=r"'JobPool'.*'task'; .*@jobs\.job"):
        JobPool().task()
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        JobPool().nothing()
    assert not hasattr(handler(), "apply_async")


def test_what_a_property_raises_is_not_taken_for_a_missing_attribute(monkeypatch):
    """Python asks for other systems' words then, too."""
    monkeypatch.setattr(Handler, "kinds", property(lambda _: None.depth))
    with pytest.raises(AttributeError, match=r"'NoneType'.*'depth'"):
        handler().kinds  # noqa: B018 - it is what is tested


def test_no_word_of_ours_is_taken_for_another_systems():
    """What an option or a method is called there must not be one here."""
    assert not OF_HANDLERS.keys() & inspect.signature(JobPool.job).parameters.keys()
    assert not OF_CALLS.keys() & set(dir(Handler))
    assert not OF_POOLS.keys() & set(dir(JobPool()))
