"""Moving a queue with damaged rows: the others move as they are."""

import sqlite3
from contextlib import closing, suppress

import msgspec
import pytest

from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.store.move import move
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from support.postgres.server import server
from support.store.storing import begin_run, ended, lease, new_job, succeeded

WRONG = [-1, 2**53, 2**63 - 1, -(2**63), 1.5, float("inf"), "text", b"\xff", "leased"]
NOT_TEXT = ["CAST(x'ff' AS TEXT)", "'nul' || char(0)", "'\ud7ff'"]
NAMES = {"id", "job_id"}
_GARBAGE = [
    "INSERT INTO jobpool_breakers VALUES ('z', 'garbage', 1, 1, 1, 1)",
    "INSERT INTO jobpool_pauses (what, name) VALUES ('what', x'00')",
    "INSERT INTO jobpool_suspects VALUES (99, 'when')",
    """
    INSERT INTO jobpool_kinds
    VALUES ('k', 'r', 'cpu', '{', 'x', 'x', 1, 1, 'x', 'd', '{', '[')
    """,
    "UPDATE jobpool_runs SET pid = 'text', pools = '[', version = x'00'",
]


@pytest.fixture
def source_url(database_path):
    return f"sqlite:///{database_path}"


@pytest.fixture
def target_url():
    url = server().store_url()
    yield url
    server().drop(url)


class Filler:
    """Fills a queue with jobs in pairs, and damages the first one of each."""

    def __init__(self, source_url, clock):
        self.path = source_url.removeprefix("sqlite:///")
        self.pairs = []
        with closing(open_store(source_url, clock=clock)) as store:
            begin_run(store)
            with closing(sqlite3.connect(self.path, isolation_level=None)) as hand:
                hand.execute("PRAGMA ignore_check_constraints = ON")
                columns = {
                    table: [
                        name
                        for (name,) in hand.execute(
                            "SELECT name FROM pragma_table_info(?)",
                            (f"jobpool_{table}",),
                        )
                    ]
                    for table in ("jobs", "payloads", "attempts", "results")
                }
                cases = [
                    (table, column, value)
                    for table, names in columns.items()
                    for column in names
                    if column not in NAMES
                    for value in [*WRONG, None, *NOT_TEXT]
                ]
                self._fill(store, len(cases))
                for pair, case in zip(self.pairs, cases, strict=True):
                    self._spoil(hand, pair[0], *case)
            store.end_run("run-1")

    def _fill(self, store, count):
        """Make pairs of runnable, retryable and succeeded jobs, in turn."""
        made = [one.id for one in store.enqueue([new_job()] * 2 * count)]
        self.pairs = list(zip(made[::2], made[1::2], strict=True))
        granted = {one.id: one for one in lease(store, limit=2 * count)}
        store.settle(
            [
                (succeeded, ended)[number % 2](granted[one])
                for number, pair in enumerate(self.pairs)
                for one in pair
            ]
        )

    def _spoil(self, hand, job_id, table, column, value):
        key = "id" if table == "jobs" else "job_id"
        text = value if isinstance(value, str) and value in NOT_TEXT else "?"
        with suppress(sqlite3.IntegrityError):
            hand.execute(
                f"UPDATE jobpool_{table} SET {column} = {text} WHERE {key} = {job_id}",  # noqa: S608 - our names
                [value] if text == "?" else [],
            )


def test_one_damaged_value_keeps_no_other_job_from_moving(
    source_url, target_url, clock
):
    """Any value in any column: the job itself moves as well as it can."""
    filler = Filler(source_url, clock)
    with closing(open_store(source_url, clock=clock)) as source:
        before = {job.id: job for job in source.find(Filter(), limit=10_000)}
        attempts = {one: source.attempts(one) for _, one in filler.pairs}
    moved = move.move(source_url, target_url)
    with closing(open_store(target_url)) as target:
        after = {job.id: job for job in target.find(Filter(), limit=10_000)}
        assert after.keys() == before.keys()
        for spoilt, honest in filler.pairs:
            assert after[honest] == before[honest]
            assert target.attempts(honest) == attempts[honest]
            assert honest not in moved.spoilt
            job = after[spoilt]
            assert job.state in (*FINISHED, JobState.PENDING)
            if job.state is JobState.DEAD:
                assert "cannot be read" in job.reason
                assert spoilt in moved.spoilt
    assert len(moved.spoilt) > len(filler.pairs) / 3
    assert sum(moved.states.values()) == len(before)


def test_a_damaged_row_of_a_small_table_stays_behind(source_url, target_url, clock):
    """Its valid rows move."""
    with closing(open_store(source_url, clock=clock)) as source:
        begin_run(source)
        source.pause(pool="io")
        source.end_run("run-1")
        with closing(sqlite3.connect(source_url[10:], isolation_level=None)) as hand:
            hand.execute("PRAGMA ignore_check_constraints = ON")
            for statement in _GARBAGE:
                hand.execute(statement)
    move.move(source_url, target_url)
    with closing(open_store(target_url)) as target:
        assert target.paused() == [("pool", "io")]
        assert (target.breakers(), target.kinds(), target.open_runs()) == ([], [], [])


def test_keys_that_are_no_utf8_do_not_conflict_after_a_move(
    source_url, target_url, clock
):
    """Two keys that are not UTF-8 would read the same."""
    with closing(open_store(source_url, clock=clock)) as source:
        ids = [one.id for one in source.enqueue([new_job(key=k) for k in "abc"])]
        with closing(sqlite3.connect(source_url[10:], isolation_level=None)) as hand:
            for job_id, byte in zip(ids, ("ff", "fe"), strict=False):
                hand.execute(
                    f"UPDATE jobpool_jobs SET key = CAST(x'{byte}' AS TEXT) "  # noqa: S608 - ours
                    f"WHERE id = {job_id}"
                )
    moved = move.move(source_url, target_url)
    assert list(moved.spoilt) == ids[:2]
    with closing(open_store(target_url)) as target:
        assert [target.get(one).key for one in ids] == [None, None, "c"]
        assert target.get(ids[0]).state is JobState.DEAD
    assert msgspec.json.encode(moved)
