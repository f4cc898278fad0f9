"""Figures out of range, written by hand or by a caller: no other job is affected."""

import math
import sqlite3

import msgspec
import pytest

from jobpool.core.jobs.job import TIME_MAX_MS, Evidence, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import StoreRefused, StoreUnavailable
from jobpool.store.opening import open_store
from jobpool.store.statements.validation import COUNT_MAX, MEMORY_MAX_BYTES
from support.store.storing import (
    begin_run,
    counters,
    ended,
    handed_back,
    kind_record,
    lease,
    lease_one,
    new_job,
    succeeded,
)

INT_MAX = 2**63 - 1
COUNTERS = (
    "attempt",
    "reset_attempt",
    "failures",
    "crashes",
    "interruptions",
    "recoveries",
)


@pytest.fixture
def write(by_hand):
    """Change stored rows directly, as with the sqlite3 shell."""

    def run(statement, *values):
        assert by_hand.execute(statement, values).rowcount == 1

    return run


@pytest.fixture
def write_job(write):
    """Change columns of one job."""

    def run(job_id, changes):
        write(f"UPDATE jobpool_jobs SET {changes} WHERE id = ?", job_id)  # noqa: S608 - the tests' own

    return run


@pytest.fixture
def write_counter(write):
    """Change one of jobpool_meta's counters."""

    def run(name, figure):
        write("UPDATE jobpool_meta SET value = ? WHERE name = ?", figure, name)

    return run


SPOILT = [
    *(f"{name} = {INT_MAX}" for name in COUNTERS),
    *(f"{name} = {COUNT_MAX + 1}" for name in COUNTERS),
    f"max_attempts = {INT_MAX}",
    "max_attempts = 0",
    f"memory_bytes = {INT_MAX}",
    "memory_bytes = -1",
    "timeout_s = 9e999",
    "timeout_s = -1.0",
]


@pytest.mark.parametrize("change", SPOILT)
def test_a_runnable_row_out_of_range_stops_no_other_job(store, write_job, change):
    """It is set aside in the transaction that leases the others."""
    store.enqueue([new_job()] * 3)
    write_job(2, change)
    assert [granted.id for granted in lease(store)] == [1, 3]
    job = store.get(2)
    assert job.state is JobState.DEAD
    assert "out of range" in job.reason


@pytest.mark.parametrize(
    "change",
    [*SPOILT, "token = -1", f"leased_at_ms = {INT_MAX}", "leased_at_ms = -1"],
)
def test_a_leased_row_out_of_range_stops_no_recovery(store, write_job, change):
    """The dead run's other leases are found, and the damaged one is set aside."""
    store.enqueue([new_job()] * 3)
    lease(store)
    write_job(2, change)
    assert [granted.id for granted in store.leases_of("run-1")] == [1, 3]
    assert "out of range" in store.get(2).reason


def test_the_largest_figures_in_range_can_be_leased_and_stay(store, write_job):
    """A counter at its maximum does not grow, and the job is still readable."""
    store.enqueue([new_job()])
    everything = ", ".join(
        f"{name} = {COUNT_MAX}" for name in COUNTERS if name != "reset_attempt"
    )
    write_job(1, everything)
    granted = lease_one(store)
    assert granted.attempt == COUNT_MAX
    assert [one.attempt for one in store.leases_of("run-1")] == [COUNT_MAX]
    charged = msgspec.structs.replace(
        ended(granted, Outcome.CRASHED), state=JobState.RUNNABLE
    )
    assert store.settle([charged]) == [True]
    assert counters(store.get(1)) == (COUNT_MAX,) * 4
    assert lease_one(store).attempt == COUNT_MAX


CHARGED = {
    "failures": Outcome.FAILED,
    "crashes": Outcome.CRASHED,
    "interruptions": Outcome.INTERRUPTED,
    "recoveries": Outcome.LOST,
}


@pytest.mark.parametrize("charged", CHARGED.items())
@pytest.mark.parametrize("figure", [INT_MAX, COUNT_MAX + 1])
def test_a_settlement_stops_a_counter_at_its_maximum(store, write_job, charged, figure):
    """It is written, with the others of its batch, and the attempt is kept."""
    counter, outcome = charged
    store.enqueue([new_job()] * 2)
    first, second = lease(store)
    write_job(1, f"{counter} = {figure}")
    assert store.settle([ended(first, outcome), succeeded(second)]) == [True, True]
    assert getattr(store.get(1), counter) == COUNT_MAX
    assert [one.outcome for one in store.attempts(1)] == [outcome]
    assert store.get(2).state is JobState.SUCCEEDED


@pytest.mark.parametrize("settlement", [succeeded, ended, handed_back])
@pytest.mark.parametrize("figure", ["-5", "1.5", "'many'", "x'00ff'", str(INT_MAX)])
def test_a_settlement_is_written_whatever_the_counters_contain(
    store, by_hand, write_job, figure, settlement
):
    """Even values that only a tool that ignores the CHECKs can have written."""
    store.enqueue([new_job()])
    granted = lease_one(store)
    by_hand.execute("PRAGMA ignore_check_constraints = ON")
    write_job(1, ", ".join(f"{name} = {figure}" for name in COUNTERS))
    assert store.settle([settlement(granted)]) == [True]
    job = store.get(1)
    assert job.state is settlement(granted).state
    assert all(0 <= count <= COUNT_MAX for count in (job.attempt, *counters(job)))


@pytest.mark.parametrize("name", ["stale_settlements", "unfinished_at_most"])
def test_a_damaged_counter_stops_no_settlement(store, write_counter, name):
    """Nor a revival: the counters in jobpool_meta stop at their maximum."""
    store.enqueue([new_job()])
    granted = lease_one(store)
    write_counter(name, INT_MAX)
    hooked = msgspec.structs.replace(succeeded(granted), followup=new_job())
    assert store.settle([hooked, hooked]) == [True, False]
    store.cancel([2])
    assert store.revive([2], [JobState.CANCELED]) == 1


def test_a_result_written_by_hand_is_replaced(store, write):
    """The handler's own result is stored."""
    store.enqueue([new_job()])
    granted = lease_one(store)
    write("INSERT INTO jobpool_results (job_id, result) VALUES (1, x'31')")
    assert store.settle([succeeded(granted, b"2")]) == [True]
    assert store.get(1).result == b"2"


@pytest.mark.parametrize(
    ("reported", "stored"),
    [
        ({"peak_rss_bytes": 2**80}, {"peak_rss_bytes": MEMORY_MAX_BYTES}),
        ({"peak_rss_bytes": -1}, {"peak_rss_bytes": 0}),
        ({"duration_s": math.nan}, {"duration_s": None}),
        ({"duration_s": math.inf}, {"duration_s": TIME_MAX_MS / 1000}),
        ({"duration_s": -math.inf}, {"duration_s": 0.0}),
        ({"cpu_s": 1e300}, {"cpu_s": TIME_MAX_MS / 1000}),
        ({"cpu_s": -0.5}, {"cpu_s": 0.0}),
        ({"cpu_s": math.nan}, {"cpu_s": None}),
    ],
)
def test_figures_of_an_attempt_are_clamped(store, reported, stored):
    """In the job and in its attempt; a figure that is not a number is left out."""
    store.enqueue([new_job()])
    settlement = msgspec.structs.replace(
        ended(lease_one(store)), evidence=Evidence(**reported)
    )
    assert store.settle([settlement]) == [True]
    (attempt,) = store.attempts(1)
    for record in (store.get(1), attempt):
        assert {name: getattr(record, name) for name in stored} == stored


def test_signals_and_exit_codes_are_clamped(store):
    """In both directions; values in range are kept as they are."""
    store.enqueue([new_job()] * 2)
    first, second = lease(store)
    odd = Evidence(signal=2**70, exit_code=-(2**70))
    usual = Evidence(signal=9, exit_code=-9)
    settlements = [
        msgspec.structs.replace(ended(granted), evidence=evidence)
        for granted, evidence in ((first, odd), (second, usual))
    ]
    assert store.settle(settlements) == [True, True]
    found = [(a.signal, a.exit_code) for job in (1, 2) for a in store.attempts(job)]
    assert found == [(2**31 - 1, -(2**31)), (9, -9)]


@pytest.mark.parametrize(
    ("delay_ms", "run_at_ms"),
    [(2**80, TIME_MAX_MS), (math.inf, TIME_MAX_MS), (-(2**80), None), (1.5, None)],
)
def test_a_delay_stays_within_the_calendar(store, clock, delay_ms, run_at_ms):
    """Not after the year 9999, and not into the past."""
    store.enqueue([new_job()])
    settlement = msgspec.structs.replace(
        ended(lease_one(store)), state=JobState.PENDING, delay_ms=delay_ms
    )
    assert store.settle([settlement]) == [True]
    late_ms = (run_at_ms or clock.utc_ms() + max(0, int(delay_ms))) - clock.utc_ms()
    assert store.get(1).run_at_ms - clock.utc_ms() == late_ms


@pytest.mark.parametrize("figure", [INT_MAX, 2**43, 2**43 - 1, -1, None])
def test_a_token_counter_out_of_range_is_refused(store, by_hand, write_counter, figure):
    """The remedy works when it is followed exactly."""
    store.enqueue([new_job()])
    if figure is None:
        by_hand.execute("DELETE FROM jobpool_meta WHERE name = 'tokens'")
    else:
        write_counter("tokens", figure)
    with pytest.raises(StoreRefused, match="jobpool_meta") as refused:
        lease(store)
    assert store.get(1).state is JobState.RUNNABLE
    remedy = str(refused.value).split("`")[1]
    by_hand.execute(remedy)
    assert lease_one(store).token < 2**63


def test_the_last_token_is_granted(store, write_counter):
    """It is still in range; after it the store refuses."""
    store.enqueue([new_job()] * 2)
    write_counter("tokens", 2**43 - 2)
    granted = lease(store, limit=1)
    assert [one.token >> 20 for one in granted] == [2**43 - 1]
    with pytest.raises(StoreRefused):
        lease(store)


def test_a_payload_without_a_job_does_not_block_a_new_job(store, by_hand):
    """A payload written by hand is replaced by the job's own."""
    by_hand.execute("INSERT INTO jobpool_payloads VALUES (1, x'00')")
    store.enqueue([new_job(payload=b'{"n": 1}')])
    assert store.payload(1) == b'{"n": 1}'


def test_a_failed_check_that_no_row_causes_is_refused_with_its_table(store, by_hand):
    """SQLite names only the expression; a lease that meets it changes nothing."""
    store.enqueue([new_job()])
    by_hand.execute(
        "CREATE TRIGGER mine BEFORE UPDATE ON jobpool_jobs "
        "BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    with pytest.raises(StoreRefused, match="table jobpool_jobs") as refused:
        lease(store)
    assert isinstance(refused.value.__cause__, sqlite3.IntegrityError)
    assert store.get(1).state is JobState.RUNNABLE


def test_a_number_beyond_sqlite_is_refused(store):
    """Python's own OverflowError is not raised."""
    with pytest.raises(StoreRefused, match="table jobpool_runs") as refused:
        store.renew("run-1", 2.0**80)
    assert isinstance(refused.value.__cause__, OverflowError)


@pytest.mark.parametrize(
    ("statement", "ask"),
    [
        ("UPDATE jobpool_runs SET pools = '{'", "open_runs"),
        ("UPDATE jobpool_runs SET pools = x'ff'", "open_runs"),
        ("UPDATE jobpool_runs SET pid = 'x'", "open_runs"),
        ("UPDATE jobpool_kinds SET timeout_s = 'x'", "kinds"),
        ("UPDATE jobpool_kinds SET schema = x'00'", "kinds"),
    ],
)
def test_a_damaged_record_is_read_as_far_as_possible(store, write, statement, ask):
    """A run without its figures, a kind not at all.

    Then it is repaired and reported.
    """
    begin_run(store, kinds=[kind_record()])
    write(statement)
    assert len(getattr(store, ask)()) == (ask == "open_runs")
    store.scrub(None)
    assert len(store.damaged_rows()) == 1
    store.scrub(None)
    assert len(store.damaged_rows()) == 0


@pytest.mark.parametrize("run_id", ["../../etc", "..", "", "nul\0", "a/b", "x" * 999])
def test_a_run_whose_id_cannot_name_a_directory_is_deleted(store, by_hand, run_id):
    """A search for dead runs must not be led elsewhere, nor stopped by it."""
    by_hand.execute("UPDATE jobpool_runs SET id = ?", (run_id,))
    assert store.open_runs() == []
    store.scrub(None)
    assert by_hand.execute("SELECT count(*) FROM jobpool_runs").fetchone() == (0,)


def test_a_recreated_database_refuses_the_runs_of_the_old_one(
    store, store_url, database_path, clock
):
    """They must start again; the new database has no such run."""
    for file in database_path.parent.glob("jobs.db*"):
        if file.is_file():
            file.unlink()
    anew = open_store(store_url, clock=clock)
    anew.enqueue([new_job()])
    with pytest.raises(StoreUnavailable, match="was replaced"):
        store.renew("run-1", 60)
    with pytest.raises(StoreRefused, match="restart jobpool"):
        store.renew("run-1", 60)
    with pytest.raises(StoreRefused, match="restart jobpool"):
        lease(store)
    begin_run(store, "run-2")
    assert [granted.id for granted in lease(store, "run-2")] == [1]
    anew.close()
