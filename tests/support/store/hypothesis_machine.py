"""The store against a plain model: two supervisors, operators and a moving clock.

The model is a dict of jobs and says, in a few lines each, what every method of the
protocol does. After each step all jobs of the store are compared with the model's.
"""

import contextlib
import os
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import (
    FINISHED,
    UNFINISHED,
    OnConflict,
    Progress,
    Settlement,
)
from jobpool.core.jobs.outcome import CHARGES, Outcome
from jobpool.core.rules.lifecycle import Ending, account, hand_back
from jobpool.errors import KeyConflict
from jobpool.store.opening import open_store
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.operating import Filter, Replay
from jobpool.store.records.runs import Renewal
from support.crash_points.states import work_root
from support.store.model import (
    DEBOUNCED,
    KINDS,
    NEW_JOBS,
    POLICY,
    POOL_OF,
    REVIVABLE,
    ModelJob,
    S,
    fields_of,
)
from support.store.new_file import place_new_file
from support.store.storing import ManualClock, begin_run, new_job

TTL_S = 60


def depth(examples, steps):
    """Return how many lives of a machine are tried, and how long they are.

    The gate's figures, unless JOBPOOL_MODEL_EXAMPLES asks for a long run.
    """
    examples = int(os.environ.get("JOBPOOL_MODEL_EXAMPLES", examples))
    return settings(max_examples=examples, stateful_step_count=steps)


class StoreMachine(RuleBasedStateMachine):
    """Rules call the store and the model alike.

    The model counts its jobs from 1; a store may leave gaps between its ids.
    """

    leases = Bundle("leases")

    def __init__(self):
        super().__init__()
        self.clock = ManualClock()
        self.exits = contextlib.ExitStack()
        self.open_one = self.make_store()
        self.stores = [self.open_one() for _ in range(2)]
        self.jobs = {}
        self.next_id = 1
        self.id_of = {0: 0}
        self.number_of = {}
        self.lease_until_ms = {}
        self.last_token = 0
        self.paused = set()
        self.runs = {}
        self.stale = 0

    def make_store(self):
        """Make an empty store; return what opens it."""
        directory = self.exits.enter_context(
            tempfile.TemporaryDirectory(prefix="jobpool-model-", dir=work_root())
        )
        place_new_file(path := f"{directory}/jobs.db")
        return lambda: open_store(f"sqlite:///{path}", clock=self.clock)

    def teardown(self):
        for store in self.stores:
            store.close()
        self.exits.close()

    @initialize()
    def start(self):
        for index in range(2):
            self.begin_run(index, f"run-{index}-0")

    def begin_run(self, which, run_id):
        self.runs[which] = begin_run(self.stores[which], run_id, ttl_s=TTL_S)
        self.lease_until_ms[run_id] = self.clock.utc_ms() + TTL_S * 1000

    # -- what the model says ---------------------------------------------------------

    def holder(self, kind, field, text, states):
        return next(
            (
                job_id
                for job_id, job in self.jobs.items()
                if text is not None
                and (job.kind, getattr(job, field)) == (kind, text)
                and job.state in states
                and (job.is_named or field != "unique")
            ),
            None,
        )

    def expected_enqueue(self, new, job_id):
        """Return the id that answers, and the job to add if it is a new one."""
        now_ms = self.clock.utc_ms()
        by_key = self.holder(new["kind"], "key", new["key"], list(S))
        if by_key is not None:
            if self.jobs[by_key].payload != new["payload"]:
                raise KeyConflict("as the model says", by_key)
            return by_key, None
        by_unique = self.holder(new["kind"], "unique", new["unique"], UNFINISHED)
        if by_unique is not None:
            return by_unique, None
        delay_ms, expires_in_ms = new["delay_ms"], new["expires_in_ms"]
        return job_id, ModelJob(
            kind=new["kind"],
            payload=new["payload"],
            priority=new["priority"],
            key=new["key"],
            unique=new["unique"],
            state=S.PENDING if delay_ms else S.RUNNABLE,
            run_at_ms=now_ms + delay_ms,
            expires_at_ms=expires_in_ms and now_ms + expires_in_ms,
            created_at_ms=now_ms,
        )

    def follower(self, kind):
        """Return the job that waits for the text u."""
        return next(
            (
                number
                for number, job in self.jobs.items()
                if (job.kind, job.state) == (kind, S.WAITING)
            ),
            None,
        )

    def pass_texts_on(self):
        """Let those go that wait for a text which nobody has any more."""
        for job in self.jobs.values():
            if job.state is S.WAITING and (
                self.holder(job.kind, "unique", job.unique, UNFINISHED) is None
            ):
                job.state, job.is_named = S.PENDING, True

    def debounced(self, new, debounce):
        """Return the number and the model's job that answer, which this changes."""
        now_ms, number = self.clock.utc_ms(), self.next_id
        fresh = self.expected_enqueue({**new, "key": None, "unique": None}, number)[1]
        fresh.unique, fresh.until_start = "u", debounce.until_start
        held = self.holder(new["kind"], "unique", "u", UNFINISHED)
        follower = self.follower(new["kind"])
        if held is None:
            return number, fresh
        job = self.jobs[held]
        is_open = not (job.attempt or job.snoozes or job.key or job.state is S.LEASED)
        target = follower or (held if is_open else None)
        if not debounce.revises:
            return (follower or held), None
        if target is None:
            fresh.state, fresh.is_named = S.WAITING, False
            return number, fresh
        job = self.jobs[target]
        for field in ("payload", "priority", "expires_at_ms", "until_start"):
            setattr(job, field, getattr(fresh, field))
        job.replacements += 1
        if debounce.on_conflict is OnConflict.POSTPONE:
            job.postponements += 1
            latest_ms = job.created_at_ms + debounce.postpone_max_ms
            job.run_at_ms = min(now_ms + new["delay_ms"], latest_ms)
            job.state = S.WAITING if job.state is S.WAITING else S.PENDING
        return target, None

    # -- rules ---------------------------------------------------------------------

    @rule(which=st.integers(0, 1), news=st.lists(NEW_JOBS, max_size=6))
    def enqueue(self, which, news):
        before = dict(self.jobs)
        jobs = [new_job(pool=POOL_OF[new["kind"]], **new) for new in news]
        try:
            wanted = []
            next_id = self.next_id
            for new in news:
                job_id, job = self.expected_enqueue(new, next_id)
                wanted.append((job_id, job is not None, self.state_of(job_id, job)))
                if job is not None:
                    self.jobs[job_id] = job
                    next_id += 1
        except KeyConflict:
            self.jobs = before
            try:
                self.stores[which].enqueue(jobs)
            except KeyConflict:
                return
            raise AssertionError("the store saw no conflict") from None
        answers = self.stores[which].enqueue(jobs)
        for one, (number, is_new, _) in zip(answers, wanted, strict=True):
            if is_new:
                assert one.id > max(self.id_of.values())
                self.id_of[number], self.number_of[one.id] = one.id, number
        assert [
            (self.number_of[one.id], one.created, one.state) for one in answers
        ] == wanted
        self.next_id = next_id

    @rule(which=st.integers(0, 1), new=DEBOUNCED)
    def enqueue_debounced(self, which, new):
        number, job = self.debounced(new, new["debounce"])
        (one,) = self.stores[which].enqueue(
            [new_job(pool=POOL_OF[new["kind"]], unique="u", **new)]
        )
        if job is not None:
            self.jobs[number], self.next_id = job, number + 1
            self.id_of[number], self.number_of[one.id] = one.id, number
        debounce, job = new["debounce"], self.jobs[number]
        is_new = number == self.next_id - 1 and one.created
        assert (self.number_of[one.id], one.state) == (number, job.state)
        assert one.replaced == (debounce.revises and not is_new)
        is_later = debounce.on_conflict is OnConflict.POSTPONE
        assert one.postponed == (is_later and not is_new)
        assert self.stores[which].payload(one.id) == job.payload

    def state_of(self, job_id, job):
        return job.state if job is not None else self.jobs[job_id].state

    @rule(
        target=leases,
        which=st.integers(0, 1),
        pool=st.sampled_from(["cpu", "io"]),
        limit=st.integers(1, 4),
    )
    def lease(self, which, pool, limit):
        now_ms = self.clock.utc_ms()
        run = self.runs[which]
        if self.lease_until_ms[run] <= now_ms:
            if not self.stores[which].one_host:
                batch = self.stores[which].lease(run, {pool: limit}, KINDS)
                assert (batch.lapsed, batch.leases) == (True, ())
                self.store_and_model_agree()
            self.renew(which, anew=True)
        for job in self.jobs.values():
            if job.state in {S.PENDING, S.RUNNABLE} and job.is_late(now_ms):
                job.finish(S.CANCELED, now_ms)
        self.pass_texts_on()
        for job in self.jobs.values():
            if job.state is S.PENDING and job.run_at_ms <= now_ms:
                job.state = S.RUNNABLE
        best = sorted(
            (-job.priority, job.run_at_ms, job_id)
            for job_id, job in self.jobs.items()
            if job.state is S.RUNNABLE
            and job.kind in KINDS[pool]
            and not self.paused & {("pool", pool), ("kind", job.kind)}
        )
        taken = [self.jobs[number] for *_, number in best[:limit]]
        late = [job for job in taken if job.is_late(now_ms)]
        batch = self.stores[which].lease(run, {pool: limit}, KINDS)
        numbers = [self.number_of[one.id] for one in batch.leases]
        assert [self.jobs[number] for number in numbers] == [
            job for job in taken if job not in late
        ]
        for job in late:  # it has had its text, and so its turn, in this very lease
            job.finish(S.CANCELED, now_ms)
        self.pass_texts_on()
        for one in batch.leases:
            job = self.jobs[self.number_of[one.id]]
            assert one.token > self.last_token
            self.last_token = one.token
            job.attempt += 1
            assert (one.attempt, one.payload) == (job.attempt, job.payload)
            assert (one.checkpoint, len(one.history)) == (job.checkpoint, job.past)
            assert (one.snoozes, one.snoozed_since_ms) == (
                job.snoozes,
                job.snoozed_since_ms,
            )
            spent = (one.failures, one.crashes, one.interruptions, one.recoveries)
            assert spent == job.spent
            job.state, job.token, job.run = S.LEASED, one.token, run
            job.is_named = not job.until_start and job.is_named
        due_ms = [j.run_at_ms for j in self.jobs.values() if j.state is S.PENDING]
        wait_s = min(due_ms) - now_ms if due_ms else None
        if late:
            wait_s = 0
        assert batch.next_due_in_s == (None if wait_s is None else wait_s / 1000)
        return multiple(*batch.leases)

    @rule(which=st.integers(0, 1), granted=leases, outcome=st.sampled_from(Outcome))
    def settle_once_or_late(self, which, granted, outcome):
        ending = Ending(outcome=outcome, result=b'"done"')
        now_ms = self.clock.utc_ms()
        self.settle(which, account(granted, POLICY, ending, now_ms=now_ms))

    @rule(which=st.integers(0, 1), granted=leases, after_s=st.sampled_from([0.5, 60.0]))
    def snooze_once_or_late(self, which, granted, after_s):
        ending = Ending(outcome=Outcome.FAILED, snooze_s=after_s)
        now_ms = self.clock.utc_ms()
        self.settle(which, account(granted, POLICY, ending, now_ms=now_ms))

    @rule(which=st.integers(0, 1), granted=consumes(leases))
    def give_back(self, which, granted):
        self.settle(which, hand_back(granted))

    def settle(self, which, settlement: Settlement):
        now_ms = self.clock.utc_ms()
        job = self.jobs.get(self.number_of[settlement.id])
        is_current = job is not None and job.token == settlement.token
        receipt = Receipt.ACCEPTED if is_current else Receipt.STALE
        assert self.stores[which].settle([settlement]) == [receipt]
        if not is_current:
            self.stale += 1
            return
        job.token = job.run = None
        state = settlement.state
        if job.is_asked_to_stop and state in UNFINISHED:
            state = S.CANCELED
        job.is_asked_to_stop = False
        if settlement.outcome is None:
            job.attempt -= 1
            if settlement.snoozed:
                job.snoozes += 1
                job.snoozed_since_ms = job.snoozed_since_ms or now_ms
        else:
            if settlement.state in UNFINISHED:
                job.snoozes, job.snoozed_since_ms = 0, None
            job.outcome = settlement.outcome
            charge = CHARGES[settlement.outcome]
            job.spent = tuple(a + b for a, b in zip(job.spent, charge[:4], strict=True))
            job.past += settlement.outcome is not Outcome.SUCCEEDED
        if settlement.state is S.PENDING:
            job.run_at_ms = now_ms + settlement.delay_ms
        if state is S.SUCCEEDED:
            job.result = settlement.result
        job.state = state
        if state in FINISHED:
            job.finish(state, now_ms)
            self.pass_texts_on()

    @rule(which=st.integers(0, 1), granted=leases, value=st.sampled_from([b"1", b"2"]))
    def save_checkpoint(self, which, granted, value):
        beat = Progress(granted.id, granted.token, None, value)
        self.stores[which].record([beat])
        job = self.jobs.get(self.number_of[granted.id])
        if job is not None and job.token == granted.token:
            job.checkpoint = value

    @rule(which=st.integers(0, 1), data=st.data())
    def cancel(self, which, data):
        ids = data.draw(st.lists(st.sampled_from([0, *self.jobs]), max_size=4))
        now_ms, count = self.clock.utc_ms(), 0
        for job_id in set(ids) & set(self.jobs):
            job = self.jobs[job_id]
            if job.state in {S.PENDING, S.WAITING, S.RUNNABLE, S.QUARANTINED}:
                job.is_named |= job.state is S.WAITING
                job.finish(S.CANCELED, now_ms)
                count += 1
            elif job.state is S.LEASED:
                job.is_asked_to_stop = True
                count += 1
        self.pass_texts_on()
        assert self.stores[which].cancel([self.id_of[one] for one in ids]) == count

    @rule(
        which=st.integers(0, 1),
        data=st.data(),
        states=st.lists(st.sampled_from(REVIVABLE), unique=True),
    )
    def revive(self, which, data, states):
        job_id = data.draw(st.sampled_from([0, *self.jobs]))
        job = self.jobs.get(job_id)
        can_be = (
            job is not None
            and job.state in states
            and job.replaced_by is None
            and (
                not job.is_named
                or self.holder(job.kind, "unique", job.unique, UNFINISHED)
                in {None, job_id}
            )
        )
        revived = self.stores[which].revive([self.id_of[job_id]], states)
        assert revived == int(can_be)
        if can_be:
            job.state, job.run_at_ms = S.RUNNABLE, self.clock.utc_ms()
            job.finished_at_ms = job.expires_at_ms = None
            job.spent, job.past = (0, 0, 0, 0), 0
            job.snoozes, job.snoozed_since_ms = 0, None

    @precondition(lambda self: self.jobs)
    @rule(
        which=st.integers(0, 1),
        data=st.data(),
        kind=st.sampled_from([None, None, *POOL_OF]),
        times=st.integers(1, 2),
    )
    def replay(self, which, data, kind, times):
        self.cancel(which, data)  # Lives are short, and few jobs end in them.
        ended = [number for number, job in self.jobs.items() if job.state in FINISHED]
        job_id = data.draw(st.sampled_from([*ended, *self.jobs, 0]))
        old = self.jobs.get(job_id) or ModelJob("a", b"", 0, None, None, S.DEAD, 0, 0)
        kind = kind or old.kind
        can_be = (
            job_id
            and old.state in FINISHED
            and old.replaced_by is None
            and self.holder(kind, "key", old.key, list(S)) in {None, job_id}
            and self.holder(kind, "unique", old.unique, UNFINISHED) is None
        )
        options = {"priority": old.priority, "key": old.key, "unique": old.unique}
        new = new_job(kind=kind, pool=POOL_OF[kind], payload=b"3", **options)
        replay = Replay(job_id=self.id_of[job_id], new=new)
        made, *again = self.stores[which].replay([replay] * times)
        assert again in ([], [None])
        assert (made is not None) == bool(can_be)
        if can_be:
            assert made > max(self.id_of.values())
            number, self.next_id = self.next_id, self.next_id + 1
            self.id_of[number], self.number_of[made] = made, number
            now_ms = self.clock.utc_ms()
            self.jobs[number] = ModelJob(
                kind=kind,
                payload=b"3",
                state=S.RUNNABLE,
                run_at_ms=now_ms,
                expires_at_ms=None,
                created_at_ms=now_ms,
                replays=job_id,
                **options,
            )
            old.key, old.replaced_by = None, number

    @rule(seconds=st.sampled_from([0.001, 1, 5, 60, 3600, 43_200, -5, -7200]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule(which=st.integers(0, 1), what=st.sampled_from(["pool", "kind"]))
    def pause_or_resume(self, which, what):
        name = {"pool": "cpu", "kind": "b"}[what]
        store = self.stores[which]
        if (what, name) in self.paused:
            assert store.resume(**{what: name})
        else:
            assert store.pause(**{what: name})
        self.paused ^= {(what, name)}

    @rule(which=st.integers(0, 1), kept_s=st.sampled_from([0, 60, None]))
    def prune(self, which, kept_s):
        kept = Retention(**{f"{state}_s": kept_s for state in FINISHED})
        old = [
            job_id
            for job_id, job in self.jobs.items()
            if kept_s is not None
            and job.state in FINISHED
            and job.finished_at_ms < self.clock.utc_ms() - kept_s * 1000
        ]
        assert self.stores[which].prune(kept) == len(old)
        for job_id in old:
            del self.jobs[job_id]

    @rule(which=st.integers(0, 1))
    def the_other_one_is_proven_dead(self, which):
        dead = self.runs[1 - which]
        store = self.stores[which]
        held = store.leases_of(dead)
        wanted = {
            (self.id_of[number], job.token)
            for number, job in self.jobs.items()
            if job.run == dead
        }
        assert {(one.id, one.token) for one in held} == wanted
        for one in held:
            ending = Ending(outcome=Outcome.LOST)
            now_ms = self.clock.utc_ms()
            self.settle(which, account(one, POLICY, ending, now_ms=now_ms))
        store.end_run(dead)
        number = int(dead.rpartition("-")[2]) + 1
        self.begin_run(1 - which, f"run-{1 - which}-{number}")

    @rule(which=st.integers(0, 1), anew=st.booleans())
    def renew(self, which, anew):
        run, now_ms = self.runs[which], self.clock.utc_ms()
        is_held = self.lease_until_ms[run] > now_ms
        answer = self.stores[which].renew(run, TTL_S, anew=anew)
        assert answer == (Renewal.HELD if is_held else Renewal.LAPSED)
        if is_held or anew:
            self.lease_until_ms[run] = now_ms + TTL_S * 1000

    @rule(which=st.integers(0, 1))
    def take_over_what_has_expired(self, which):
        store, now_ms = self.stores[which], self.clock.utc_ms()
        late = {r for r in self.runs.values() if self.lease_until_ms[r] <= now_ms}
        holders = {job.run for job in self.jobs.values()}
        assert {run.id for run in store.expired_runs()} == late & holders
        for run in sorted(self.runs.values()):
            with store.transaction():
                assert store.seize(run) == (run in late)
                for one in store.leases_of(run) if run in late else ():
                    ending = Ending(outcome=Outcome.LOST)
                    self.settle(which, account(one, POLICY, ending, now_ms=now_ms))

    @rule(which=st.integers(0, 1))
    def open_again(self, which):
        self.stores[which].close()
        self.stores[which] = self.open_one()

    # -- what always holds -----------------------------------------------------------

    @invariant()
    def store_and_model_agree(self):
        stored = self.stores[0].find(Filter(), 10**6)
        found = {self.number_of[job.id]: fields_of(job) for job in stored}
        wanted = {number: job.fields() for number, job in self.jobs.items()}
        assert found == wanted
        links = {
            self.number_of[job.id]: (
                self.number_of.get(job.replays),
                self.number_of.get(job.replaced_by),
            )
            for job in stored
        }
        assert links == {
            number: (job.replays, job.replaced_by) for number, job in self.jobs.items()
        }

    @invariant()
    def counters_hold(self):
        assert self.stores[1].describe()["stale_settlements"] == str(self.stale)
