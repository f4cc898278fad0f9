"""Moving a queue.

All or nothing, every value, and an old store that names the new one.
"""

import contextlib

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.formats import FORMAT
from jobpool.core.jobs.job import FINISHED, Debounce, JobState, OnConflict, Progress
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.circuit_breaker import BreakerState, Saved
from jobpool.core.rules.policy import Policy
from jobpool.errors import ConfigError, FeatureHeldBack, StoreRefused
from jobpool.store.move import move
from jobpool.store.move.source import Source
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from jobpool.store.sqlite.result_parts import PART_BYTES
from support.postgres.server import query_of, server
from support.store.storing import (
    KINDS,
    begin_run,
    ended,
    kind_record,
    lease_one,
    new_job,
    succeeded,
)


class Interrupted(BaseException):
    """Raised in the moving code in place of a kill."""


@pytest.fixture
def source_url(database_path):
    return f"sqlite:///{database_path}"


@pytest.fixture
def target_url():
    url = server().store_url()
    yield url
    server().drop(url)


@pytest.fixture
def source(source_url, clock):
    store = open_store(source_url, clock=clock)
    yield store
    store.close()


@pytest.fixture
def open_target(target_url):
    stores = []

    def make():
        stores.append(open_store(target_url))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


def furnish(store):
    """Put a job of every state that does not need a supervisor into a queue."""
    begin_run(store, kinds=[kind_record()])
    store.enqueue([new_job(payload=b'{"n":1}', key="k", tenant="t", priority=7)])
    granted = lease_one(store)
    beat = Progress(
        id=granted.id, token=granted.token, progress=b"0.5", checkpoint=b'{"at":3}'
    )
    store.record([beat])
    end = succeeded(granted, b'{"ok":"\xc3\xa4"}', cpu_s=0.1, output="said ä\n")
    store.settle([msgspec.structs.replace(end, keeps_output=True)])
    store.enqueue([new_job(max_attempts=1)])
    store.settle([ended(lease_one(store), policy=Policy(max_attempts=1))])
    store.enqueue([new_job()])
    store.settle(
        [ended(lease_one(store), Outcome.CRASHED, policy=Policy(max_crashes=1))]
    )
    store.enqueue([new_job()])
    store.settle([ended(lease_one(store))])
    ids = store.enqueue([new_job(), new_job(unique="u"), new_job(delay_ms=3_600_000)])
    store.cancel([ids[0].id])
    store.pause(kind="shop.fetch")
    store.end_run("run-1")


def everything(store):
    """Return everything that a store shows about its jobs."""
    jobs = store.find(Filter(), limit=10_000)
    return [
        (
            job,
            store.payload(job.id),
            (store.attempts(job.id), store.kept_output(job.id)),
        )
        for job in reversed(jobs)
    ]


def test_what_the_source_may_hold_is_asked_for_first(
    source, source_url, target_url, open_target
):
    """A supervisor of the target that does not know it holds the move back."""
    furnish(source)
    source.require(FORMAT)
    target = open_target()
    begin_run(target, "old", format=1)
    with pytest.raises(FeatureHeldBack, match="wait for"):
        move.move(source_url, target_url)
    source.enqueue([new_job()])
    target.end_run("old")
    move.move(source_url, target_url)
    assert target.formats().least == FORMAT
    assert everything(target) == everything(source)


def test_moved_outputs_are_dropped_in_order(
    source, source_url, target_url, open_target
):
    """The room that they take up moves with them; what was dropped stays so."""
    begin_run(source)
    ids = []
    for text in ("a" * 3000, "b", "c" * 2000):
        source.enqueue([new_job()])
        end = succeeded(lease_one(source), output=text)
        source.settle([msgspec.structs.replace(end, keeps_output=True)])
        ids.append(end.id)
    source.drop_outputs(3 * 1024)
    source.end_run("run-1")
    before = [source.kept_output(job_id) for job_id in ids]
    assert [kept.output and kept.output[0] for kept in before] == [None, "b", "c"]
    move.move(source_url, target_url)
    target = open_target()
    assert [target.kept_output(job_id) for job_id in ids] == before
    assert (target.drop_outputs(2049), target.drop_outputs(2048)) == (0, 1)


def test_a_move_keeps_every_value(source, source_url, target_url, open_target):
    """States, ids, payloads, results, checkpoints, history, pauses and kinds."""
    furnish(source)
    states = {job.state for job, _, _ in everything(source)}
    assert states >= {*FINISHED, JobState.RUNNABLE, JobState.PENDING}
    moved = move.move(source_url, target_url)
    target = open_target()
    assert everything(target) == everything(source)
    assert (target.paused(), target.kinds()) == (source.paused(), source.kinds())
    assert moved.jobs == len(everything(source)) == sum(moved.states.values())


def test_a_move_keeps_results_in_parts(source, source_url, target_url, open_target):
    """As it was returned."""
    begin_run(source)
    (one,) = source.enqueue([new_job()])
    end = succeeded(lease_one(source), b'"' + b"xy" * PART_BYTES + b'"')
    while source.store_part(end):
        pass
    source.settle([end])
    source.end_run("run-1")
    move.move(source_url, target_url)
    assert open_target().get(one.id).result == end.result


def test_a_move_keeps_suspects_and_breakers(
    source, source_url, target_url, open_target
):
    """Suspects, and kinds that crash in a row: none begins beside others there."""
    furnish(source)
    begin_run(source, "run-2")
    (accused,) = source.enqueue([new_job(priority=100)])
    lost = ended(lease_one(source, "run-2"), Outcome.LOST)
    source.settle([msgspec.structs.replace(lost, suspect=True)])
    source.end_run("run-2")
    held = Saved(
        kind="shop.fetch", state=BreakerState.OPEN, crashes=20, last_job=1, wait_s=1e6
    )
    source.save_breakers([held])
    move.move(source_url, target_url)
    target = open_target()
    assert [one.id for one in target.suspects()] == [accused.id]
    assert target.suspects() == source.suspects()
    (found,) = target.breakers()
    assert msgspec.structs.replace(found, wait_s=1e6) == held


def test_a_move_keeps_what_a_job_waits_for(
    source, source_url, target_url, open_target, by_hand
):
    """How often it snoozed, and which schema its arguments did not fit."""
    begin_run(source, kinds=[kind_record()])
    (one,) = source.enqueue([new_job()])
    source.end_run("run-1")
    by_hand.execute("UPDATE jobpool_jobs SET snoozes = 3, snoozed_since_ms = 7")
    by_hand.execute("INSERT INTO jobpool_misfits VALUES (?, 'digest', 5, 9)", [one.id])
    move.move(source_url, target_url)
    target = open_target()
    assert everything(target) == everything(source)
    found = target.get(one.id)
    assert (found.snoozes, found.snoozed_since_ms, found.unfit_since_ms) == (3, 7, 5)
    with contextlib.closing(server().connect(target_url)) as connection:
        schema = query_of(target_url)["schema"]
        digests = connection.execute(f"SELECT schema_digest FROM {schema}.kinds")  # noqa: S608 - our own
        assert digests.fetchall() == [(kind_record().schema_digest,)]
        misfits = connection.execute(f"SELECT * FROM {schema}.misfits")  # noqa: S608 - our own
        assert misfits.fetchall() == [(one.id, "digest", 5, 9)]


def test_a_move_takes_jobs_that_follow_others(
    source, source_url, target_url, open_target, by_hand
):
    """Also one whose predecessor was damaged, and is dead there: it is let go."""
    begin_run(source)

    def follow(unique, payload=b"1"):
        shared = Debounce(OnConflict.REPLACE)
        new = new_job(unique=unique, payload=payload, debounce=shared)
        return source.enqueue([new])[0].id

    sound, spoilt = follow("u"), follow("v")
    granted = source.lease("run-1", {"cpu": 2}, KINDS).leases
    followers = follow("u"), follow("v")
    source.settle([ended(one, retry_in_s=0.0) for one in granted])
    assert follow("u", b"2") == followers[0]
    source.end_run("run-1")
    by_hand.execute("PRAGMA ignore_check_constraints = ON")
    by_hand.execute("UPDATE jobpool_jobs SET attempt = 'x' WHERE id = ?", [spoilt])
    move.move(source_url, target_url)
    target = open_target()
    found = target.get(followers[0])
    assert (found.state, found.follows, found.replacements) == ("waiting", sound, 1)
    assert target.release_followers() == 1
    assert target.get(followers[1]).state is JobState.PENDING
    assert target.cancel([sound]) == 1
    assert target.get(followers[0]).state is JobState.PENDING
    assert target.payload(followers[0]) == b"2"


@pytest.mark.parametrize("jobs", [0, 1, 2500])
def test_a_move_takes_any_number_of_jobs(
    source, source_url, target_url, open_target, jobs
):
    """None, one, and several chunks; the next id is higher."""
    given = source.enqueue([new_job()] * jobs)
    move.move(source_url, target_url)
    target = open_target()
    assert target.count(Filter()) == jobs
    (fresh,) = target.enqueue([new_job()])
    assert fresh.id == (given[-1].id if given else 0) + 1


def test_the_history_of_a_chunks_last_job_moves(
    source, source_url, target_url, open_target
):
    """And so does that of the next chunk's first job."""
    begin_run(source)
    source.enqueue([new_job()] * 999)
    source.enqueue([new_job(priority=9)] * 2)
    for _ in range(2):
        source.settle([ended(lease_one(source), retry_in_s=60.0)])
    source.end_run("run-1")
    move.move(source_url, target_url)
    target = open_target()
    assert [len(tried) for *_, (tried, _) in everything(source)[-3:]] == [0, 1, 1]
    assert everything(target) == everything(source)


def test_a_chunk_is_a_thousand_jobs(source, source_url):
    """Or as many as are left: a move of many takes few steps."""
    given = [answer.id for answer in source.enqueue([new_job()] * 2500)]
    moved = Source(source_url.removeprefix("sqlite:///"))
    assert list(moved.chunks()) == [
        (-(2**63), given[999]),
        (given[999], given[1999]),
        (given[1999], given[2499]),
    ]
    assert list(moved.chunks(after=given[-1])) == []
    moved.close()


def test_a_pruned_id_is_not_used_again_after_a_move(
    source, source_url, target_url, open_target, clock
):
    """And a token of the target is above every one of the source."""
    furnish(source)
    begin_run(source, "run-2")
    source.enqueue([new_job(priority=100)])
    granted = lease_one(source, "run-2")
    source.settle([succeeded(granted)])
    source.end_run("run-2")
    clock.advance(10)
    assert source.prune(Retention(succeeded_s=1.0)) == 2
    move.move(source_url, target_url)
    target = open_target()
    (fresh,) = target.enqueue([new_job(priority=100)])
    assert fresh.id > granted.id
    begin_run(target, "run-3")
    assert lease_one(target, "run-3").token > granted.token


def test_an_interrupted_move_can_be_continued(
    source, source_url, target_url, open_target
):
    """Nothing is visible until everything is; staged rows are not staged again."""
    source.enqueue([new_job()] * 2500)
    reports = []

    def interrupt(staged, total):
        reports.append((staged, total))
        raise Interrupted

    for _ in range(2):
        with pytest.raises(Interrupted):
            move.move(source_url, target_url, interrupt)
    target = open_target()
    assert target.count(Filter()) == 0
    move.move(source_url, target_url, lambda *seen: reports.append(seen))
    assert reports == [(1000, 2500), (2000, 2500), (2500, 2500)]
    assert everything(target) == everything(source)


def test_an_interrupted_last_step_shows_nothing(
    source, source_url, target_url, open_target, monkeypatch
):
    """And the next call does it."""
    furnish(source)
    verify = move._verify

    def interrupt(*given):
        verify(*given)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(move, "_verify", interrupt)
        with pytest.raises(Interrupted):
            move.move(source_url, target_url)
    target = open_target()
    assert target.count(Filter()) == 0
    with pytest.raises(StoreRefused, match="in its last step: give --to"):
        move.abandon(source_url)
    move.move(source_url, target_url)
    assert everything(target) == everything(source)


def test_a_move_whose_answer_was_lost_is_known_to_be_done(
    source, source_url, target_url, monkeypatch
):
    """Committed, but its caller died before it could record that: it is done."""
    furnish(source)
    appear = move._publish

    def interrupt(*given):
        appear(*given)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(move, "_publish", interrupt)
        with pytest.raises(Interrupted):
            move.move(source_url, target_url)
    with pytest.raises(StoreRefused, match="is done"):
        move.abandon(source_url, target_url)
    assert move.move(source_url, target_url).checksum is None


def test_a_second_call_says_that_it_is_done(source, source_url, target_url):
    """And leaves nothing of the staging behind."""
    furnish(source)
    assert move.move(source_url, target_url).checksum
    assert move.move(source_url, target_url).checksum is None
    with server().connect() as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = %s "
            "AND tablename LIKE 'moving%%'",
            [target_url.rpartition("schema=")[2]],
        ).fetchone()
    assert found == (0,)
    with pytest.raises(StoreRefused, match="is done: after abandoning it both"):
        move.abandon(source_url)


def test_a_changed_value_in_the_target_stops_the_move(
    source, source_url, target_url, open_target
):
    """A row that differs in the target keeps all of them invisible."""
    source.enqueue([new_job()] * 1500)
    schema = target_url.rpartition("schema=")[2]

    def spoil(staged, _total):
        if staged == 1500:
            with server().connect() as connection:
                connection.execute(
                    f"UPDATE {schema}.moving_jobs SET payload = '' WHERE id = 7"  # noqa: S608 - ours
                )

    with pytest.raises(StoreRefused, match=r"is not what .* holds"):
        move.move(source_url, target_url, spoil)
    assert open_target().count(Filter()) == 0
    assert move.abandon(source_url) == source_url
    move.move(source_url, target_url)
    assert everything(open_target()) == everything(source)


def test_an_old_producer_gets_the_new_address(source, source_url, target_url):
    """And so are an old supervisor, and operators who retry or cancel there."""
    (job,) = source.enqueue([new_job()])
    moved = move.move(source_url, target_url)
    for attempt in (
        lambda: source.enqueue([new_job()]),
        lambda: source.cancel([job.id]),
        lambda: source.pause(pool="cpu"),
        lambda: begin_run(source, "late"),
    ):
        with pytest.raises(StoreRefused) as caught:
            attempt()
        assert f"this queue was moved to {moved.target};" in str(caught.value)


def test_a_source_in_use_is_refused(source, source_url, target_url):
    """It stays open, and the remedy is named."""
    begin_run(source)
    source.enqueue([new_job()])
    with pytest.raises(StoreRefused, match="jobpool reclaim run-1"):
        move.move(source_url, target_url)
    source.enqueue([new_job()])


def test_a_lease_of_an_unknown_run_moves_as_dead(
    source, source_url, target_url, open_target, by_hand
):
    """It is unknown how it ended; an operator may let it run again."""
    begin_run(source)
    source.enqueue([new_job()])
    granted = lease_one(source)
    by_hand.execute("UPDATE jobpool_runs SET ended_at_ms = 1")
    moved = move.move(source_url, target_url)
    assert moved.states == {"dead": 1}
    assert list(moved.spoilt) == [granted.id]
    assert "supervisor" in open_target().get(granted.id).reason


def test_jobs_with_ids_used_in_the_target_are_refused(
    source, source_url, target_url, open_target
):
    """Nothing is mixed; the move can be abandoned, and the source works on."""
    target = open_target()
    target.enqueue([new_job()] * 3)
    furnish(source)
    with pytest.raises(StoreRefused, match="3 jobs have ids or keys"):
        move.move(source_url, target_url)
    assert target.count(Filter()) == 3
    move.abandon(source_url, target_url)
    source.enqueue([new_job()])


def test_staging_tables_of_another_source_are_refused(
    source, source_url, target_url, tmp_path, open_target
):
    """Two queues do not become one by accident."""
    other = f"sqlite:///{tmp_path}/other.db"
    open_store(other).close()
    target = open_target()
    target.enqueue([new_job()])
    source.enqueue([new_job()])
    with pytest.raises(StoreRefused, match="1 jobs have ids"):
        move.move(source_url, target_url)
    with pytest.raises(
        StoreRefused, match=rf"a move from {source_url} to .* has begun"
    ):
        move.move(other, target_url)


def test_one_move_has_one_target(source, source_url, target_url):
    """Another address is refused until the first move is abandoned."""
    source.enqueue([new_job()])
    move.move(source_url, target_url)
    other = server().fresh_url()
    try:
        with pytest.raises(StoreRefused, match=r"is being moved to .*, not to"):
            move.move(source_url, other)
    finally:
        server().drop(other)


def test_only_sqlite_queues_can_be_moved(target_url, source_url, source):
    """And only a move that has begun can be abandoned."""
    with pytest.raises(ConfigError, match="--from: only a SQLite queue"):
        move.move(target_url, target_url)
    with pytest.raises(StoreRefused, match="nothing to abandon"):
        move.abandon(source_url)
    source.enqueue([new_job()])
