"""The pool of a job, chosen when it is enqueued: ``options(pool=)``."""

import pytest

import jobpool
from jobpool import UsageError, testing
from jobpool.core.rules.quotas.lanes import lane_id
from jobpool.store.opening import open_store
from support.store.storing import begin_run


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def jobs(url):
    jobs = jobpool.JobPool(url)
    yield jobs
    jobs.close()


@pytest.fixture
def load(jobs):
    @jobs.job("io", kind="load", concurrency=5)
    def load(n: int) -> None: ...

    @jobs.job("heavy", kind="bulk")
    def bulk() -> None: ...

    return load


def test_a_job_may_be_in_any_pool_of_the_configuration(load, tmp_path):
    """One of a handler of the same application, or one that runs by default, too."""
    (tmp_path / "jobpool.toml").write_text('[pools.gpu]\nsize = "2"\n')
    for pool in ("gpu", "heavy", "io"):
        job = load.options(pool=pool).call(1).job
        assert job.pool == pool
        assert job.lane == lane_id(pool, "load", 0, None, {})
    assert load.call(1).job.pool == "io"


def test_a_job_may_be_in_a_pool_that_a_supervisor_runs(load, url):
    with pytest.raises(UsageError):
        load.options(pool="remote").call(1)
    store = open_store(url)
    begin_run(store, "run-1", pools={"remote": "2"})
    assert load.options(pool="remote").enqueue(1).info().pool == "remote"
    store.close()


def test_a_pool_that_nobody_has_is_refused(jobs, load):
    """For every way to enqueue; nothing is stored."""
    hint = r"pool 'gpu' is in no configuration.*Known are cpu, heavy, io; add"
    bound = load.options(pool="gpu")
    for enqueue in (
        lambda: bound.enqueue(1),
        lambda: bound.call(1),
        lambda: jobs.enqueue_many(bound, [{"n": 1}]),
    ):
        with pytest.raises(UsageError, match=hint):
            enqueue()
    assert load.enqueue(1).id == 1


@pytest.mark.parametrize("pool", ["", "GPU", "a b", 5])
def test_what_is_no_name_of_a_pool_is_refused(load, pool):
    with pytest.raises(UsageError, match="pool"):
        load.options(pool=pool)


def test_a_schedules_jobs_are_in_the_pool_of_its_call(jobs, load):
    jobs.schedule("hourly", load.options(pool="heavy").call(1), every="1h")
    assert jobs.declared_schedules()[0].pool == "heavy"


def test_a_handler_may_choose_among_its_supervisors_pools(load, monkeypatch):
    """Its process may see no configuration file."""
    with testing.running() as rehearsal:
        load.options(pool="heavy").enqueue(1)
        with pytest.raises(UsageError, match="Nothing was enqueued"):
            load.options(pool="gpu").enqueue(1)
    assert [job.pool for job in rehearsal.enqueued] == ["heavy"]


def test_what_a_started_process_imports_is_not_judged(load, monkeypatch):
    """A zygote sees neither the flags of its supervisor nor the store."""
    monkeypatch.setenv("JOBPOOL_RUN", "run-1")
    assert load.options(pool="gpu").call(1).job.pool == "gpu"
