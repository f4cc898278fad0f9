"""A forbidden value in any column of any table costs only its own row.

Each case damages one column in a row of each role that a job can have, beside an intact
twin, runs the queue empty through every method of the store, and is undone: the next
case finds the same queue. A twin ends as it should. A damaged row ends like its twin if
the value does no harm, or is set aside with its reason.
"""

import os
from contextlib import contextmanager, suppress
from zlib import crc32

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import JobState, Progress, Start
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.circuit_breaker import BreakerState, Saved
from jobpool.core.rules.policy import Policy
from jobpool.store.opening import open_store
from jobpool.store.operations.flows.pruning import Searched
from jobpool.store.records.operating import Filter
from jobpool.store.sqlite.result_parts import PART_BYTES
from jobpool.store.statements.integrity import (
    ATTEMPT,
    BREAKER,
    BULK,
    JOB,
    KIND,
    MISFIT,
    PAUSE,
    RUN,
    SUSPECT,
    RowChecker,
)
from support.postgres.server import query_of
from support.store.storing import (
    begin_run,
    ended,
    handed_back,
    kind_record,
    new_job,
    succeeded,
)

ENGINES = ["sqlite", "postgres"]
SHARE = 1 if os.environ.get("JOBPOOL_WHOLE_WALK") else 40
"""One in so many cases is in the usual run; which ones, their names decide."""
KINDS = {"cpu": ("shop.thumbnail",)}
NO_RETENTION = Retention(succeeded_s=0.0, canceled_s=0.0, dead_s=0.0, quarantined_s=0.0)
MIN, MAX = -(2**63), 2**63 - 1
WRONG = {
    "sqlite": [
        *(-1, 0, 5, 2**31, 2**53, MAX, MIN, 1.5, -0.5, float("inf"), 1e300),
        *("", "text", "12", "nul\0here", "\ud7ff\ue000", "x" * 70_000, "[" * 9_000),
        *(b"", b"\xff\xfe", b"text"),
        *("leased", "runnable", "succeeded", "trying"),
    ],
    "postgres": [-1, 0, 5, 2**31 - 1, MAX, MIN, float("inf"), float("nan"), "", "text"],
}
"""NULL comes besides, wherever the database lets it in."""
NO_TWIN = {"state", "token", "supervisor", "leased_at_ms", "run_at_ms"}
NO_TWIN |= {"cancel_requested", "expires_at_ms"}
"""Columns whose damage may make a job end differently from its twin."""
TABLES = {
    "sqlite": [
        *("jobs", "payloads", "results", "attempts", "runs", "kinds", "pauses"),
        *("suspects", "breakers", "result_parts", "result_drafts", "misfits"),
        "running",
    ],
    "postgres": [
        *("jobs", "attempts", "runs", "kinds", "pauses", "suspects", "breakers"),
        *("misfits", "running"),
    ],
}
ROLES = (
    *("success", "failure", "burial", "release", "lost"),
    *("history", "runnable", "pending", "expiring"),
    *("succeeded", "dead", "quarantined", "canceled", "later"),
)


class Undo(Exception):
    """Raised to undo the case."""


class Queue:
    """A queue with two jobs of every role; the first one of each is to be damaged."""

    def __init__(self, url, clock):
        self.engine = url.partition(":")[0].removesuffix("ql")
        self.url, self.clock = url, clock
        self.store = open_store(url, clock=clock)
        self.schema = None if self.engine == "sqlite" else query_of(url)["schema"]
        if self.engine != "sqlite":
            self._drop_rules()
        self.ids, self.leases = {}, {}
        self._furnish()

    # -- what is in it -------------------------------------------------------------

    def _furnish(self):
        begin_run(self.store, kinds=[kind_record()])
        begin_run(self.store, "run-0", kinds=[kind_record("shop.other")], boot_id="old")
        for role in ("succeeded", "dead", "quarantined", "canceled", "history"):
            self._pair(role)
        leases = self._lease("run-1")
        policy = Policy(max_attempts=1, max_crashes=1)
        end = {
            "succeeded": lambda one: succeeded(one, b'{"n":1}', peak_rss_bytes=7),
            "dead": lambda one: ended(one, policy=policy),
            "quarantined": lambda one: ended(one, Outcome.CRASHED, policy=policy),
            "canceled": handed_back,
            "history": ended,
        }
        for role, settle in end.items():
            self.store.settle([settle(leases[one]) for one in self.ids[role]])
        self.store.cancel(self.ids["canceled"])
        self._pair("lost")
        self.leases |= self._lease("run-0")
        for role in ("success", "failure", "burial", "release"):
            self._pair(role)
        self.leases |= self._lease("run-1")
        (long, _), result = self.ids["success"], b'"' + b"x" * 3 * PART_BYTES + b'"'
        self.long = succeeded(self.leases[long], result)
        self.store.store_part(self.long)
        self._pair("runnable", priority=3)
        self._pair("pending", delay_ms=1000)
        self._pair("expiring", delay_ms=3_600_000, expires_in_ms=1000)
        self._pair("later", delay_ms=36_000_000)
        self.clock.advance(600)
        self.store.pause(kind="shop.resize")
        self.store.save_breakers(
            [
                Saved(
                    kind="shop.fetch",
                    state=BreakerState.OPEN,
                    crashes=20,
                    last_job=1,
                    wait_s=60.0,
                )
            ]
        )
        spoilt = [pair[0] for pair in self.ids.values()]
        with self._writing() as (execute, mark):
            for table, columns in (
                ("suspects", "job_id, since_ms"),
                ("misfits", "job_id, schema_digest, since_ms, until_ms"),
                ("running", "job_id, token, updated_at_ms, rss_bytes, output"),
            ):
                values = [self.ids["later"][0], "digest", 5, 6, "text"]
                if table != "misfits":
                    values.pop(1)
                count = columns.count(",") + 1
                values = [*values[: count - 1], "out"] if table == "running" else values
                if table == "running":
                    values = [self.ids["success"][0], 7, 5, 6, "out"]
                marks = ", ".join([mark] * count)
                execute(
                    f"INSERT INTO {self.table(table)} ({columns}) VALUES ({marks})",  # noqa: S608 - our names
                    values[:count],
                )
        self.spoilt = spoilt

    def _pair(self, role, **options):
        made = self.store.enqueue([new_job(**options)] * 2)
        self.ids[role] = [one.id for one in made]

    def _lease(self, run_id):
        self.store.renew(run_id, 600.0, anew=True)
        return {
            one.id: one for one in self.store.lease(run_id, {"cpu": 99}, KINDS).leases
        }

    # -- a hand --------------------------------------------------------------------

    def table(self, name):
        return f"{self.schema}.{name}" if self.schema else f"jobpool_{name}"

    @contextmanager
    def _writing(self):
        """Yield the store's own connection, in its transaction, without constraints."""
        with self.store._database.writing() as session:
            if self.engine == "sqlite":
                session.connection.execute("PRAGMA ignore_check_constraints = ON")
                try:
                    yield session.connection.execute, "?"
                finally:
                    session.connection.execute("PRAGMA ignore_check_constraints = OFF")
            else:
                session.rows("now")  # what begins the transaction has gone
                session.has_written = True
                yield session.connection.execute, "%s"

    def _drop_rules(self):
        with self._writing() as (execute, _):
            rules = execute(
                "SELECT conrelid::regclass::text, quote_ident(conname) "
                "FROM pg_constraint WHERE connamespace = %s::regnamespace "
                "AND contype IN ('c', 'n') AND NOT EXISTS (SELECT 1 FROM pg_constraint "
                "AS k WHERE k.conrelid = pg_constraint.conrelid AND k.contype = 'p' "
                "AND k.conkey @> pg_constraint.conkey)",
                [self.schema],
            ).fetchall()
            for table, rule in rules:
                execute(f"ALTER TABLE {table} DROP CONSTRAINT {rule}")

    def columns(self, table):
        """Return a table's columns as the database names them."""
        with self._writing() as (execute, _):
            if self.engine == "sqlite":
                rows = execute(
                    "SELECT name FROM pragma_table_info(?)", [self.table(table)]
                )
            else:
                rows = execute(
                    "SELECT column_name FROM information_schema.columns "
                    "WHERE table_schema = %s AND table_name = %s",
                    [self.schema, table],
                )
            return [name for (name,) in rows.fetchall()]

    def spoil(self, table, column, value):
        """Write a value into a row of every role; return whether any was accepted."""
        key = {"jobs": "id", "runs": "id"}.get(table, "job_id")
        of_jobs = "job_id" in self.columns(table) or table == "jobs"
        which = self.spoilt if of_jobs else ["run-0"] if table == "runs" else [None]
        taken = 0
        for one in which:
            where = "1 = 1" if one is None else f"{key} = {one!r}"
            with suppress(Exception), self._writing() as (execute, mark):
                execute(
                    f"UPDATE {self.table(table)} SET {column} = {mark} WHERE {where}",  # noqa: S608 - our names
                    [value],
                )
                taken += 1
        return taken

    # -- the work ------------------------------------------------------------------

    def work_off(self):
        """Do everything that is done with a queue; none of it may fail."""
        store, ids = self.store, self.ids
        self.read_all()
        held = [one for one in self.leases.values() if one.id not in ids["lost"]]
        store.record([Progress(one.id, one.token, b"1", b"2") for one in held])
        store.begin_attempts([Start(one.id, one.token, "cpu/0", 0.0) for one in held])
        policy = Policy(max_attempts=1)
        ends = {
            "success": succeeded,
            "failure": lambda one: ended(one, retry_in_s=3600.0),
            "burial": lambda one: ended(one, policy=policy),
            "release": handed_back,
        }
        while store.store_part(self.long):
            pass
        store.settle(
            [
                self.long if job_id == self.long.id else end(self.leases[job_id])
                for role, end in ends.items()
                for job_id in ids[role]
            ]
        )
        for run in store.open_runs():
            store.seize(run.id, by="run-1")
        self.run_all()
        store.cancel(ids["later"])
        states = [JobState.DEAD, JobState.QUARANTINED, JobState.CANCELED]
        wanted = [j for role in ("dead", "quarantined", "canceled") for j in ids[role]]
        store.revive(wanted, states)
        self.run_all()
        store.note_death("run-0", 1, with_host=True)
        lost = store.leases_of("run-0")
        store.settle([ended(one, Outcome.LOST) for one in lost])
        self.read_all()
        with undone(store):
            while store.prune(NO_RETENTION):
                pass
            assert not store.count(Filter(ids=tuple(ids["succeeded"][1:])))

    def run_all(self):
        """Lease and succeed until nothing is due."""
        for _ in range(20):
            self.store.renew("run-1", 600.0, anew=True)
            batch = self.store.lease("run-1", {"cpu": 3}, KINDS)
            self.store.settle([succeeded(one) for one in batch.leases])
            if not batch.leases and batch.next_due_in_s != 0.0:
                return
        pytest.fail("leases never end")

    def read_all(self):
        """Run every query that commands run."""
        store = self.store
        for job in store.find(Filter(), limit=1000):
            job.shown_state  # noqa: B018 - it must have one
            store.get(job.id), store.payload(job.id), store.attempts(job.id)
        store.count(Filter()), store.groups(Filter()), store.stats(), store.figures()
        store.waiting(), store.kinds(), store.suspects(), store.breakers()
        store.paused(), store.open_runs(), store.expired_runs(), store.changed()
        store.due(KINDS, 100), store.cancel_requests("run-1")

    def scrub(self):
        after = self.store.scrub(None)
        while after is not None:
            after = self.store.scrub(after)

    def end(self):
        """End the runs: nothing may remain that prevents it."""
        self.scrub()
        for run_id in ("run-0", "run-1"):
            left = self.store.leases_of(run_id)
            self.store.settle([handed_back(one) for one in left])
            self.store.end_run(run_id)
        self.scrub()

    def states(self):
        return {job.id: job for job in self.store.find(Filter(), limit=1000)}

    def damaged(self):
        """Return the invalid rows."""
        with self.store._database.reading() as session:
            ids = msgspec.json.encode(list(self.states())).decode()
            rows = session.rows("raw_jobs", ids=ids)
        return [rows[place] for place in RowChecker(tuple(JOB)).damaged(rows)]

    def spoilt_states(self, *, sound):
        """Return the states of the jobs to be damaged, or of those that are."""
        bad = {row[0] for row in self.damaged()}
        found = self.states()
        return {one: found[one].state for one in self.spoilt if sound or one in bad}


@contextmanager
def undone(store):
    """Do something in a transaction that is rolled back."""
    with suppress(Undo), store.transaction():
        yield
        raise Undo
    store._searched = Searched()  # it has pruned nothing


@pytest.fixture
def queue(new_store_url, clock):
    made = Queue(new_store_url(), clock)
    yield made
    made.store.close()


def cases(queue):
    """Yield each table, column and value that belong to this run's share."""
    for table in TABLES[queue.engine]:
        for column in queue.columns(table):
            for value in [None, *WRONG[queue.engine]]:
                name = f"{table} {column} {value!r}"
                if crc32(name.encode("utf-8", "replace")) % SHARE == 0:
                    yield table, column, value


def expected(queue):
    """Return how each job ends in an undamaged queue."""
    with undone(queue.store):
        queue.work_off()
        queue.end()
        return {job.id: (job.state, job.outcome) for job in queue.states().values()}


def complaint(queue, whole, before, column):
    """Return what is wrong with how the jobs have ended. None: nothing.

    Args:
        queue: worked off.
        whole: how they end where nothing is damaged.
        before: the former states of the damaged ones only.
        column: of the jobs themselves that was; None: another table's.
    """
    found = queue.states()
    for role, (spoilt, honest) in queue.ids.items():
        twin = found[honest]
        if (twin.state, twin.outcome) != whole[honest]:
            return f"the honest {role} is {twin.state}: {twin.reason}"
        if spoilt not in before or column in NO_TWIN:
            continue
        job = found[spoilt]
        aside = job.state is JobState.DEAD and "cannot be read" in (job.reason or "")
        if not aside and job.state not in (twin.state, before[spoilt]):
            return f"the spoilt {role} is {job.state}: {job.reason}"
        if aside and column and column not in job.reason:
            return f"the spoilt {role} is dead, and not for that: {job.reason}"
    return f"still damaged: {left[:2]}" if (left := queue.damaged()) else None


def test_one_damaged_value_costs_only_its_own_row(queue, new_store_url):
    """Whatever the value is, wherever it is, whatever is done with the queue."""
    del new_store_url
    whole = expected(queue)
    tried, wrong = 0, []
    for table, column, value in cases(queue):
        if column == "id" and table != "runs":
            continue  # which row it is, and not what stands there
        with undone(queue.store):
            if not queue.spoil(table, column, value):
                continue
            tried += 1
            is_job = table == "jobs"
            before = queue.spoilt_states(sound=not is_job)
            try:
                queue.work_off()
                queue.end()
                said = complaint(queue, whole, before, column if is_job else None)
            except Exception as error:  # noqa: BLE001 - each is a finding, all are told
                said = f"{type(error).__name__}: {error}"
        if said:
            wrong.append(f"{table}.{column} = {str(value)[:30]!r}: {said}"[:400])
    assert not wrong, f"{len(wrong)} of {tried}\n" + "\n".join(wrong)
    assert tried > 9


RULES = {
    "jobs": JOB | BULK,
    "attempts": ATTEMPT,
    "runs": RUN,
    "kinds": KIND,
    "breakers": BREAKER,
    "pauses": PAUSE,
    "suspects": SUSPECT,
    "misfits": MISFIT,
}


UNREAD = {
    *("generation", "tick", "trace"),
    *("replays", "replaced_by", "added_by", "solo"),
}
"""Columns of features to come: nothing reads them yet, so that nothing can be hurt."""
INFORMS = {"app_since_ms"}
"""A column of runs; what cannot be read there counts as unknown where it is read."""


def test_every_column_has_a_rule(queue, new_store_url):
    """A column without a rule would never be checked."""
    del new_store_url
    columns = {table: {*queue.columns(table)} for table in RULES}
    if queue.engine == "sqlite":
        columns["jobs"] |= {*BULK}  # in tables of their own
    columns["jobs"] -= UNREAD
    columns["runs"] -= INFORMS
    assert columns == {table: {*rules} for table, rules in RULES.items()}


@pytest.mark.parametrize("column", ["key", "tenant", "unique_text"])
def test_a_text_beyond_a_producers_limits_is_set_aside(queue, new_store_url, column):
    """It is sent to the child with the job.

    A text too long to send stops its sender.
    """
    del new_store_url
    job_id = queue.ids["runnable"][0]
    with queue._writing() as (execute, mark):
        execute(
            f"UPDATE {queue.table('jobs')} SET {column} = {mark} WHERE id = {mark}",  # noqa: S608 - our names
            ["x" * 300, job_id],
        )
    queue.scrub()
    assert queue.store.get(job_id).state is JobState.DEAD
    assert f"cannot be read ({column}:" in queue.store.get(job_id).reason


def test_a_run_whose_end_cannot_be_read_keeps_its_jobs(queue, new_store_url):
    """It is repaired before leases without an owner are searched for."""
    del new_store_url
    with queue._writing() as (execute, mark):
        execute(
            f"UPDATE {queue.table('runs')} SET ended_at_ms = {mark} WHERE id = {mark}",  # noqa: S608 - our names
            [-1, "run-1"],
        )
    queue.scrub()
    held = [job_id for role in ("success", "release") for job_id in queue.ids[role]]
    assert {queue.store.get(job_id).state for job_id in held} == {JobState.LEASED}
    assert not any(name in str(queue.store.damaged_rows()) for name in ("job ", "jobs"))


def test_a_damaged_job_that_runs_is_left_to_its_lease_holder(queue, new_store_url):
    """Repairing it would make its end stale, and its work would be lost."""
    del new_store_url
    job_id = queue.ids["success"][1]
    with queue._writing() as (execute, mark):
        execute(
            f"UPDATE {queue.table('jobs')} SET reset_attempt = -1 WHERE id = {mark}",  # noqa: S608 - our names
            [job_id],
        )
    queue.scrub()
    assert queue.store.get(job_id).state is JobState.LEASED
    queue.store.settle([succeeded(queue.leases[job_id])])
    assert queue.store.get(job_id).state is JobState.SUCCEEDED


def test_kinds_that_cannot_be_read_share_no_key(queue, new_store_url):
    """All are repaired to one kind, in which each key may exist once."""
    del new_store_url
    ids = queue.ids["later"]
    with queue._writing() as (execute, mark):
        for number, job_id in enumerate(ids):
            execute(
                f"UPDATE {queue.table('jobs')} SET kind = {mark}, key = 'same' "  # noqa: S608 - our names
                f"WHERE id = {mark}",
                ["x" * (300 + number), job_id],
            )
    queue.scrub()
    assert {queue.store.get(job_id).state for job_id in ids} == {JobState.DEAD}
