"""JobPool, Handler and Job over a store in memory: what is sent where, and when."""

import asyncio
import copy
import pickle
import threading

import msgspec
import pytest

from jobpool import (
    ArgumentsRejected,
    ConfigError,
    JobNotFound,
    JobPool,
    KeyConflict,
    UnknownKind,
    UsageError,
    WaitTimeout,
)
from jobpool.testing import run_now, running
from support.store.client_fakes import FakeStore, InTransaction, adder, pool_with


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture
def jobs(store):
    return pool_with(store)


@pytest.fixture
def add(jobs):
    return adder(jobs)


def test_a_handler_stays_a_function(add):
    """It can be called and tested; its name and docstring are the function's."""
    assert add(1, b=2) == 3
    assert (add.__name__, add.__doc__) == ("add", "Add.")


module_jobs = JobPool()


@module_jobs.job("cpu", kind="module.handler")
def module_handler(): ...


def test_a_handler_is_pickled_by_its_name(monkeypatch):
    """Like a function: it can be passed to pools of multiprocessing."""
    import sys

    module = type(sys)("pickled_here")
    module.module_handler = module_handler
    monkeypatch.setitem(sys.modules, "pickled_here", module)
    monkeypatch.setattr(module_handler, "__module__", "pickled_here")
    assert pickle.loads(pickle.dumps(module_handler)) is module_handler
    assert copy.copy(module_handler) is module_handler


def test_enqueue_stores_one_job_and_wakes_the_supervisor(store, add):
    """The job carries the kind, the pool and the arguments by name."""
    job = add.enqueue(1, b=2)
    assert (job.id, job.kind, job.created) == (1, "add", True)
    (stored,) = store.jobs
    assert (stored.kind, stored.pool, stored.payload) == (
        "add",
        "cpu",
        b'{"a":1,"b":2}',
    )
    assert store.wakes == 1


def test_options_travel_with_the_job(store, add):
    """`.options` changes one job, not the handler."""
    add.options(run_in="5m", priority=5, unique="u", tenant="t").enqueue(1)
    add.enqueue(2)
    first, second = store.jobs
    assert (first.delay_ms, first.priority) == (300_000, 5)
    assert (first.unique, first.tenant) == ("u", "t")
    assert (second.delay_ms, second.priority, second.unique) == (0, 0, None)


def test_a_key_gives_the_same_job_again(add):
    """The second call returns the first one's job and says so."""
    first = add.options(key="k").enqueue(1)
    again = add.options(key="k").enqueue(1)
    assert (first.created, again.created) == (True, False)
    assert first == again
    assert hash(first) == hash(again)
    elsewhere = pool_with(FakeStore()).job("cpu", kind="add")(lambda: None).enqueue()
    assert (first.id, first == elsewhere) == (elsewhere.id, False)
    assert first != add.enqueue(1)
    with pytest.raises(KeyConflict):
        add.options(key="k").enqueue(2)


def test_refused_arguments_store_nothing(store, add):
    """A refusal comes before the store is touched."""
    with pytest.raises(ArgumentsRejected):
        add.enqueue("x")
    assert store.jobs == []


def test_the_payload_limit_is_the_pools(store):
    """`payload_max` counts the bytes of the JSON."""
    jobs = pool_with(store, payload_max=11)
    handler = jobs.job("cpu", kind="k")(lambda text: None)
    handler.enqueue("")
    with pytest.raises(ArgumentsRejected, match=r"take 12 bytes .* at most 11"):
        handler.enqueue("a")


def test_enqueueing_on_a_connection_wakes_no_supervisor(store, add):
    """Before the caller commits there is nothing to see."""
    connection = InTransaction()
    add.options(connection=connection).enqueue(1)
    assert store.batches == [(1, connection)]
    assert store.wakes == 0


@pytest.mark.parametrize("name", ["self", "handler", "function", "args", "job"])
def test_an_argument_may_have_any_name(store, jobs, name):
    """Parameters of ours do not hide the handler's."""
    scope = {}
    exec(f"def named({name}):\n    return {name}", scope)  # noqa: S102
    handler = jobs.job("cpu", kind="named")(scope["named"])
    given = {name: 7}
    assert handler(**given) == 7
    assert handler.enqueue(**given).created
    assert handler.options(priority=1).enqueue(**given).created
    assert asyncio.run(handler.enqueue_async(**given)).created
    assert asyncio.run(handler.options(priority=1).enqueue_async(**given)).created
    assert jobs.enqueue_many(handler, [given]) == 1
    assert jobs.enqueue_many([handler.call(**given)]) == 1
    assert jobs.enqueue_many([handler.options(priority=1).call(**given)]) == 1
    assert {job.payload for job in store.jobs} == {b'{"%s":7}' % name.encode()}
    assert len(store.jobs) == 7
    assert jobs.invoke("named", b'{"%s":7}' % name.encode(), 100) == b"7"
    assert run_now(handler, **given) == 7


def test_an_argument_the_handler_lacks_is_rejected_whatever_its_name(store, add):
    """It is a mistake in the arguments, not in the call of the method."""
    with pytest.raises(ArgumentsRejected, match="'self'"):
        add.enqueue(1, self=5)
    with pytest.raises(ArgumentsRejected, match="'self'"):
        add.options(priority=1).enqueue(1, self=5)
    assert store.jobs == []


def test_close_closes_the_store(store, jobs):
    """The next use would open it again."""
    jobs.close()
    jobs.close()
    assert store.closed


# -- inside a child ---


def test_in_a_handler_jobs_go_to_the_supervisor(store, jobs, add):
    """The store is never touched from a child."""
    with running() as rehearsal:
        job = add.options(priority=2).enqueue(1)
        assert jobs.enqueue_many(add, [{"a": 2}] * 1500) == 1500
    assert store.batches == []
    assert rehearsal.enqueued[0].priority == 2
    assert (job.id, len(rehearsal.enqueued)) == (1, 1501)


def test_in_a_handler_jobs_are_read_through_the_supervisor(store, jobs, add):
    """One read at a time: waiting for a job would hold a slot."""
    with running():
        job = add.options(run_in="1h", tenant="ada").enqueue(1)
        found = jobs.get(job.id)
        assert (found, found.kind, found.state) == (job, "add", "pending")
        assert (job.info().tenant, job.progress) == ("ada", None)
        with pytest.raises(WaitTimeout, match="still pending"):
            job.result(timeout=0)
        with pytest.raises(JobNotFound, match="no job has this id"):
            jobs.get(2)
    assert store.get_calls == 0


def a_call(jobs):
    @jobs.job("cpu", kind="sub")
    def sub(a: int) -> int: ...

    return sub.call(1)


@pytest.mark.parametrize(
    "step",
    [
        lambda jobs, job: job.result(),
        lambda jobs, job: job.result(timeout=1),
        lambda jobs, job: job.wait(),
        lambda jobs, job: job.cancel(),
        lambda jobs, job: jobs.retry(1),
        lambda jobs, job: jobs.replay(1, a_call(jobs)),
        lambda jobs, job: jobs.transaction(None).__enter__(),
    ],
)
def test_in_a_handler_the_store_is_not_accessible(jobs, add, step):
    """Everything that would read it is refused with a remedy."""
    job = add.enqueue(1)
    with running(), pytest.raises(UsageError, match="Enqueue the rest of the work"):
        step(jobs, job)


def test_in_a_handler_no_connection_can_be_joined(add):
    """The supervisor stores the job, not the handler's transaction."""
    with running(), pytest.raises(UsageError, match="connection= cannot be used"):
        add.options(connection=object()).enqueue(1)


def test_nothing_is_enqueued_at_import_in_a_child(store, jobs, add, monkeypatch):
    """Otherwise every new child would enqueue it again."""
    job = add.enqueue(1)
    monkeypatch.setenv("JOBPOOL_RUN", "some run")
    for step in (
        lambda: add.enqueue(1),
        lambda: jobs.enqueue_many(add, [{"a": 1}]),
        lambda: job.state,
    ):
        with pytest.raises(UsageError, match="outside any handler"):
            step()
    assert len(store.jobs) == 1


# -- transactions ---


def test_in_a_transaction_a_call_that_would_wait_for_it_is_refused(store, jobs, add):
    """Only joining it works, in this thread; other threads may go on."""
    connection = InTransaction()
    others = []
    with jobs.transaction(connection):
        for step in (
            lambda: add.enqueue(1),
            lambda: jobs.enqueue_many(add, [{"a": 1}]),
            lambda: jobs.cancel(1),
            lambda: jobs.retry(1),
            lambda: jobs.replay(1, add.call(2)),
            lambda: jobs.wait(1),
            lambda: jobs.transaction(connection).__enter__(),
        ):
            with pytest.raises((UsageError, JobNotFound), match=r"ever|no job"):
                step()
        add.options(connection=connection).enqueue(1)
        thread = threading.Thread(target=lambda: others.append(add.enqueue(2)))
        thread.start()
        thread.join(30)
    assert store.batches == [(1, connection), (1, None)]
    assert len(others) == 1
    assert add.enqueue(3).id == 3


def test_an_error_in_a_transaction_ends_it(jobs, add):
    """The thread may enqueue again afterwards."""
    with pytest.raises(ZeroDivisionError), jobs.transaction(InTransaction()):
        1 / 0  # noqa: B018 - raises
    assert add.enqueue(1).created


# -- the application, as children see it ---


def test_invoke_runs_a_kind_or_an_alias(jobs, add):
    """Arguments come as JSON by name; the result is returned as JSON."""
    assert jobs.invoke("add", b'{"a":1}', 100) == b"2"
    assert jobs.invoke("plus", b'{"a":1,"b":5}', 100) == b"6"


def test_specs_are_data_about_every_handler(jobs, add):
    """The supervisor reads them without importing anything."""
    (spec,) = jobs.handler_specs()
    assert (spec.kind, spec.pool, spec.aliases) == ("add", "cpu", ("plus",))
    assert "a" in msgspec.json.decode(spec.schema)["properties"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(spec), type=type(spec)) == spec


def test_an_unknown_kind_cannot_be_invoked(jobs, add):
    """The error lists the known kinds."""
    with pytest.raises(UnknownKind, match="'gone'; it has add, plus"):
        jobs.invoke("gone", b"{}", 100)


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (object(), TypeError, "result of k cannot be stored: .* object has no JSON"),
        (float("nan"), TypeError, "nan is not a JSON number"),
        ("\ud800", TypeError, "surrogate"),
        ("SECRET" * 20, ValueError, "takes 122 bytes as JSON, at most 100"),
    ],
)
def test_a_result_that_cannot_be_stored_is_the_handlers_error(jobs, value, error, says):
    """It is described by type and size, never by value."""
    jobs.job("cpu", kind="k")(lambda: value)
    with pytest.raises(error, match=says) as caught:
        jobs.invoke("k", b"{}", 100)
    assert "SECRET" not in str(caught.value)


def test_an_async_handler_is_run_to_its_end(jobs):
    """Its result is the coroutine's."""

    @jobs.job("io", kind="k")
    async def double(n: int) -> int:
        return n * 2

    assert jobs.invoke("k", b'{"n":2}', 100) == b"4"


def test_a_handlers_exception_is_passed_on(jobs):
    """Nothing is wrapped: the child reports the exception's own class."""

    @jobs.job("cpu", kind="k")
    def fail():
        raise ZeroDivisionError("by hand")

    with pytest.raises(ZeroDivisionError, match="by hand"):
        jobs.invoke("k", b"{}", 100)


def test_a_named_store_is_absolute(monkeypatch):
    """So that the supervisor can compare it with its own."""
    monkeypatch.chdir("/")
    monkeypatch.setenv("JOBPOOL_STORE", "sqlite:////elsewhere.db")
    assert JobPool().named_store() is None
    assert JobPool("sqlite:///shop.db").named_store() == "sqlite:////shop.db"
    with pytest.raises(ConfigError, match="expected a URL"):
        JobPool(5).named_store()
