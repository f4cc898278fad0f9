"""What is put together of what the store tells."""

from jobpool.cli.watch.top.view import View
from jobpool.core.rules.circuit_breaker import BreakerState, Saved
from jobpool.core.rules.run_report import KindReport, PoolReport, ReportRow, RunReport
from jobpool.core.rules.waits import Cause, WaitRow
from jobpool.monitoring.glance.glance import Counts, Seen, glance_of
from jobpool.store.records.quotas import QuotaRow
from jobpool.store.records.reading import DepthRow, WaitingRow
from jobpool.store.records.runs import Run
from support.glances import NOW_MS, job_row, lines_of
from support.store.storing import kind_record


def supervisor(run_id="run-1", **facts):
    usual = {"host": "web-1", "boot_id": "b", "pid": 7, "version": "0"}
    return Run(id=run_id, pid_namespace=1, **{**usual, **facts})


def seen(runs=(), **facts):
    usual = {
        "at_ms": NOW_MS,
        "url": "sqlite:////srv/jobpool.db",
        "runs": runs,
        "not_alive": {run.id: "" for run in runs},
        "kinds": (),
        "reports": (),
        "leased": (),
        "ends": (),
        "pauses": (),
        "breakers": (),
    }
    return Seen(**{**usual, **facts})


def report(run_id, kinds=None, **pools):
    told = RunReport(pools=pools, kinds=kinds or {})
    return ReportRow(run_id, "web-1", 7, NOW_MS, told)


def waiting(kind, pool="cpu", jobs=10, **facts):
    usual = {"oldest_age_s": 5.0, "known": True, "paused": False}
    return WaitingRow(pool=pool, kind=kind, jobs=jobs, **{**usual, **facts})


def test_sizes_are_as_reported_else_as_written():
    """A supervisor that has just started has not reported yet."""
    one = supervisor(pools={"cpu": "2..8", "io": "16"})
    other = supervisor("run-2", pools={"cpu": "4"})
    reports = [report("run-1", cpu=PoolReport(size=5, busy=3))]
    glance = glance_of(seen([one, other], reports=reports), Counts())
    sizes = {pool.name: [(h.size, h.busy) for h in pool.hosts] for pool in glance.pools}
    assert sizes == {"cpu": [(5, 3), (4, 0)], "io": [(16, 0)]}
    cpu, io = glance.pools
    assert (cpu.size, cpu.busy, io.size) == (9, 3, 16)


def test_a_supervisor_that_is_not_alive_serves_no_pool():
    """It is named with what shows that; its slots and rates do not count."""
    gone = supervisor(pools={"cpu": "4"})
    told = report("run-1", {"shop.a": KindReport(ends_per_s=7.0)})
    given = seen(
        [gone],
        not_alive={"run-1": "it has died"},
        kinds=[kind_record("shop.a")],
        reports=[told],
    )
    glance = glance_of(given, Counts(waiting=[waiting("shop.a")]))
    assert (glance.alive, glance.silent) == (
        0,
        ("supervisor 7 on web-1: it has died",),
    )
    (pool,) = glance.pools
    assert (pool.hosts, pool.ends_per_s, pool.due) == ((), 0, 10)


def test_ends_are_those_of_all_hosts_by_the_pool_of_their_kinds():
    """Kinds that nobody publishes have no pool."""
    runs = [supervisor(f"run-{n}", pools={"cpu": "1"}) for n in (1, 2)]
    told = {"shop.a": KindReport(ends_per_s=2.0), "gone": KindReport(ends_per_s=9.0)}
    given = seen(
        runs,
        kinds=[kind_record("shop.a")],
        reports=[report("run-1", told), report("run-2", told)],
    )
    (pool,) = glance_of(given, Counts()).pools
    assert pool.ends_per_s == 4.0


def test_causes_are_shares_of_a_pools_due_jobs_and_quotas_have_names():
    """Those of which most jobs wait, that its kinds need; small causes are left out."""
    counts = Counts(
        waiting=[waiting("shop.a", jobs=80), waiting("shop.b", jobs=22)],
        causes=[
            WaitRow("shop.a", "cpu", Cause.QUOTA, 80.0),
            WaitRow("shop.b", "cpu", Cause.SLOTS, 20.0),
            WaitRow("shop.b", "cpu", Cause.MEMORY, 2.0),
            WaitRow("shop.c", "io", Cause.QUOTA, 500.0),
        ],
        quotas=[
            QuotaRow(name="stripe", quota=None, kinds=("shop.a",), waiting=80),
            QuotaRow(name="free", quota=None, kinds=("shop.a",)),
            QuotaRow(name="bank", quota=None, kinds=("shop.c",), waiting=500),
        ],
    )
    run = supervisor(pools={"cpu": "1"})
    (cpu,) = glance_of(seen([run]), counts).pools
    assert [(name, round(share, 2)) for name, share in cpu.causes] == [
        ("quota stripe", 0.78),
        ("slots", 0.2),
    ]


def test_a_job_runs_once_its_start_is_known():
    """Others have just begun, or will. Limits are the job's, else its kind's."""
    leased = [
        job_row(1, timeout_s=5.0),
        job_row(2, memory_bytes=7),
        job_row(3, started_at_ms=None, slot=None),
        job_row(4, kind="nobody.knows", supervisor=None),
    ]
    given = seen(
        [supervisor(pools={"cpu": "4"})],
        leased=leased,
        kinds=[kind_record(timeout_s=600.0, memory_bytes=2**30)],
    )
    glance = glance_of(given, Counts())
    found = [(one.job.id, one.limit_s, one.limit_bytes) for one in glance.running]
    assert found == [(1, 5.0, 2**30), (2, 600.0, 7), (4, None, None)]
    assert (glance.begun, glance.running[2].host) == (1, "-")
    assert glance.running[2].filled is None


def test_what_waits_is_counted_by_pool_and_state():
    """Due jobs, those of later, and what is dead."""
    rows = [
        DepthRow(kind="a", pool="cpu", state=state, band="normal", jobs=jobs)
        for state, jobs in (
            ("pending", 3),
            ("waiting", 4),
            ("runnable", 5),
            ("dead", 6),
            ("quarantined", 7),
        )
    ]
    counts = Counts(at_ms=1, depths=rows, waiting=[waiting("a", blocked=2)])
    glance = glance_of(seen(), counts)
    (pool,) = glance.pools
    assert (pool.due, pool.blocked, pool.later, pool.oldest_s) == (10, 2, 7, 5.0)
    assert (glance.dead, glance.quarantined, glance.counted_ms) == (6, 7, 1)


def test_a_kind_that_crashes_is_named_while_its_breaker_is_not_closed():
    """What has only been counted is no news yet."""
    breakers = [
        Saved(kind=kind, state=state, crashes=5, last_job=1, wait_s=30.0)
        for kind, state in (
            ("shop.a", BreakerState.OPEN),
            ("shop.b", BreakerState.CLOSED),
        )
    ]
    glance = glance_of(seen(breakers=breakers), Counts())
    assert glance.crashing == (breakers[0],)
    text = "\n".join(lines_of(glance, View()))
    assert "CRASHING: kind shop.a is open" in text
    assert "next try in 30s" in text
