"""A walk over all that can be asked of a store: the same one from the same number.

Unlike the rules of ``store_machine`` it has no model and no aim: every column has been
written before, and every answer is compared with another store's (``store_twins``).
"""

import contextlib
import random

import msgspec

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import FINISHED, Evidence, JobState, Progress
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.circuit_breaker import BreakerState, Saved
from jobpool.core.rules.lifecycle import Ending, account, hand_back
from jobpool.errors import JobpoolError
from jobpool.store.records.operating import Filter
from jobpool.store.records.runs import Run
from support.store.model import KINDS, POLICY, POOL_OF, REVIVABLE
from support.store.storing import begin_run, kind_record, new_job, started

KEPT = (BreakerState.CLOSED, BreakerState.SLOWED, BreakerState.OPEN)
RUNS_MAX = 3
SECONDS = (0.001, 0.5, 1, 5, 59, 61, 601, 3600, 90_000)
FIGURES = (0, 1, 7, 2**20, 2**61, -1)


class Walk:
    """Two or three supervisors, their operators and producers, on one store.

    Args:
        store: what is asked.
        clock: the store's.
        seed: another one is another walk.
    """

    def __init__(self, store, clock, seed):
        self.store, self.clock = store, clock
        self.dice = random.Random(seed)
        self.ids, self.held, self.runs, self.begun = [0], [], [], 0
        self.begin()

    @property
    def steps(self):
        """What it may do next."""
        return STEPS

    def facts(self):
        """Return what a run says of itself besides."""
        return {}

    def go(self, steps):
        """Take so many steps, and compare everything now and then."""
        for step in range(steps):
            with contextlib.suppress(JobpoolError):
                self.dice.choice(self.steps)(self)
            self.store.find(Filter(), 10**6)
            if step % 8 == 0:
                self.read_all()
        self.read_all()

    def some(self, things, most=4):
        """Return a few of them, one perhaps twice."""
        things = list(things)
        count = self.dice.randint(0, most)
        return [self.dice.choice(things) for _ in range(count)] if things else []

    def maybe(self, *values):
        """Return one of the values, or None as often as not."""
        return self.dice.choice((*values, *[None] * len(values)))

    # -- producers -----------------------------------------------------------------

    def job(self, **given):
        """Return a job that uses any of the fields."""
        kind = self.dice.choice(sorted(POOL_OF))
        drawn = {
            "payload": self.dice.choice([b"1", b"[2]"]),
            "priority": self.dice.randint(-1, 1),
            "delay_ms": self.dice.choice([0, 0, 0, 1000, 60_000]),
            "run_at_ms": self.maybe(self.clock.utc_ms() + self.dice.randint(-900, 900)),
            "expires_in_ms": self.maybe(1, 5000, 10**7),
            "key": self.maybe(None, "k", "l"),
            "unique": self.maybe(None, "u", "v"),
            "tenant": self.maybe("t", "s"),
            "max_attempts": self.maybe(1, 9),
            "timeout_s": self.maybe(0.5, 60),
            "memory_bytes": self.maybe(1, 2**60),
        }
        return new_job(kind, POOL_OF[kind], **{**drawn, **given})

    def enqueue(self):
        made = self.store.enqueue([self.job() for _ in range(self.dice.randint(1, 5))])
        self.ids += [one.id for one in made]

    # -- supervisors ---------------------------------------------------------------

    def begin(self):
        if len(self.runs) == RUNS_MAX:
            return
        self.begun += 1
        kinds = [
            kind_record(
                kind,
                self.dice.choice(["cpu", "io"]),
                timeout_s=float(self.begun),
                memory_bytes=self.begun,
                max_attempts=self.begun + 1,
                max_crashes=self.begun,
            )
            for kind in self.dice.sample(["a", "b", "c", "d"], 2)
        ]
        boot_id = self.dice.choice(["boot", "later"])
        pools = {"cpu": str(self.begun)}
        run_id = f"run-{self.begun}"
        begin_run(
            self.store, run_id, kinds, boot_id=boot_id, pools=pools, **self.facts()
        )
        self.runs.append(run_id)

    def begin_anew(self):
        """Publish other kinds, from another place, in the same life."""
        if not self.runs:
            return
        run = Run(
            id=self.dice.choice(self.runs),
            host="elsewhere",
            boot_id="third",
            pid=2,
            pid_namespace=3,
            version="2",
            pools={"io": "9"},
        )
        kinds = [kind_record(self.dice.choice("abc"), timeout_s=7.0)]
        self.store.begin_run(run, kinds, self.dice.choice([1.0, 90.0]))

    def lease(self):
        if not self.runs:
            return
        run_id = self.dice.choice(self.runs)
        self.store.renew(run_id, 60.0, anew=True)
        wanted = {"cpu": self.dice.randint(0, 3), "io": self.dice.randint(0, 2)}
        kinds = {pool: self.dice.sample(k, len(k)) for pool, k in KINDS.items()}
        batch = self.store.lease(
            run_id, wanted, kinds, suspects=self.dice.random() < 0.7
        )
        self.held += batch.leases

    def start(self):
        self.store.begin_attempts(
            [
                started(one, f"cpu/{one.id % 3}", self.clock.boottime_s() - 0.7)
                for one in self.some(self.held)
            ]
        )

    def beat(self):
        self.store.record(
            [
                Progress(
                    one.id,
                    one.token,
                    self.maybe(b"1", b"22"),
                    self.maybe(b"c", b"cc"),
                    self.maybe(2**20, -1, 2**70),
                    self.maybe(b"said", b"\xff\0\x1b[m", b""),
                )
                for one in self.some(self.held)
            ]
        )

    def evidence(self):
        text = self.dice.choice(["why", "so\nmuch", "é\0\ud800"])
        return Evidence(
            reason=self.maybe(text),
            error_class=self.maybe(text),
            error=self.maybe(text),
            traceback=self.maybe(text),
            signal=self.maybe(9, 2**40),
            exit_code=self.maybe(3, -(2**40)),
            peak_rss_bytes=self.maybe(*FIGURES),
            cpu_s=self.maybe(0.25, -1.0, 1e300),
            duration_s=self.maybe(*(float(one) for one in FIGURES)),
            output=self.maybe(text),
            stack=self.maybe(text),
            slot=self.maybe("io/1"),
        )

    def settlement(self, granted):
        if self.dice.random() < 0.2:
            return hand_back(granted)
        ending = Ending(
            outcome=self.dice.choice([Outcome.SUCCEEDED, *Outcome]),
            evidence=self.evidence(),
            result=self.maybe(b'"done"', b"2"),
            retry_in_s=self.maybe(0.5, 100.0),
            give_up=self.dice.random() < 0.1,
        )
        now_s = self.clock.boottime_s()
        made = account(granted, POLICY, ending, now_ms=self.clock.utc_ms())
        return msgspec.structs.replace(
            made,
            suspect=self.maybe(True, False),
            rule=made.rule or self.maybe("ValueError"),
            followup=self.maybe(self.job(key=None, unique=None), None),
            completed=self.dice.random() < 0.2,
            keeps_output=self.dice.random() < 0.5,
            began_s=self.maybe(now_s - 2.0, now_s - 0.5),
            ended_s=self.maybe(now_s, now_s - 0.25),
        )

    def settle(self):
        """Settle some, late ones among them, and perhaps one twice in a call."""
        chosen = self.some(self.held[-8:], 3)
        self.store.settle([self.settlement(one) for one in chosen])

    def take_over(self):
        """Take what an expired run holds, as soon as it has lapsed for long enough."""
        found = self.store.expired_runs()
        by = self.maybe(*self.runs) if self.runs else None
        for run in found[:1]:
            with self.store.transaction():
                if self.store.seize(run.id, by=by, lapsed_s=self.dice.choice([0, 600])):
                    self.finish(run.id)

    def finish(self, run_id):
        lost = self.store.leases_of(run_id)
        self.store.settle([self.settlement(one) for one in lost])
        if not self.store.leases_of(run_id):
            self.store.end_run(run_id)
            self.runs.remove(run_id)

    def die(self):
        if self.runs:
            run_id = self.dice.choice(self.runs)
            if self.dice.random() < 0.3:
                self.store.note_leaving(run_id)
            ran, with_host = self.dice.randint(0, 2), self.dice.random() < 0.3
            self.store.note_death(run_id, ran, with_host=with_host)
            self.finish(run_id)

    def renew(self):
        if self.runs:
            ttl_s = self.dice.choice([1.0, 60.0])
            anew = self.dice.random() < 0.5
            self.store.renew(self.dice.choice(self.runs), ttl_s, anew=anew)

    def clear(self):
        self.store.clear([(one.id, one.token) for one in self.some(self.held)])

    def break_kinds(self):
        saved = [
            Saved(
                kind=kind,
                state=self.dice.choice(KEPT),
                crashes=self.dice.randint(0, 9),
                last_job=self.dice.randint(0, 9),
                wait_s=self.dice.choice([0.0, 1.0, 300.0]),
            )
            for kind in sorted(set(self.some("abc", 2)))
        ]
        self.store.save_breakers(saved)

    def prune(self):
        kept = {f"{s}_s": self.maybe(0.0, 60.0, 90_000.0) for s in FINISHED}
        self.store.prune(Retention(**kept))

    def drop_outputs(self):
        """Drop all of them: how much room was lost to what was undone may differ."""
        self.store.drop_outputs(0)

    # -- operators -------------------------------------------------------------------

    def cancel(self):
        self.store.cancel(self.some(self.ids, 3))

    def revive(self):
        states = self.dice.sample(REVIVABLE, self.dice.randint(1, 4))
        self.store.revive(self.some(self.ids, 6), states)

    def pause(self):
        what = self.dice.choice([{"pool": "cpu"}, {"kind": "a"}, {"kind": "c"}])
        self.dice.choice([self.store.pause, self.store.resume])(**what)

    def time_passes(self):
        self.clock.advance(self.dice.choice(SECONDS))

    def fail(self):
        """Do a few things at once, and nothing of it in the end."""
        kept = list(self.ids), list(self.held), list(self.runs)
        with contextlib.suppress(ZeroDivisionError), self.store.transaction():
            for step in self.some([self.cancel, self.beat, self.pause, self.prune]):
                step()
            raise ZeroDivisionError
        self.ids, self.held, self.runs = kept

    # -- what there is to see ----------------------------------------------------------

    def read_all(self):
        """Ask everything that changes nothing."""
        store = self.store
        for job_id in self.some(self.ids, 12):
            store.get(job_id)
            store.payload(job_id)
            store.attempts(job_id)
            store.kept_output(job_id)
            store.tick_of(job_id)
        for which in self.filters():
            store.count(which)
            store.groups(which)
            store.find(which, self.dice.randint(1, 5))
        store.stats()
        store.figures()
        store.waiting()
        store.kinds()
        store.paused()
        store.suspects()
        store.breakers()
        store.open_runs()
        store.expired_runs()
        store.due(KINDS, self.dice.randint(1, 3))
        for run_id in self.runs:
            store.leases_of(run_id)
            store.cancel_requests(run_id)

    def filters(self):
        """Yield filters of each part alone, and one of several."""
        since_ms = self.clock.utc_ms() - round(1000 * self.dice.choice(SECONDS))
        states = tuple(self.dice.sample(list(JobState), 2))
        parts = {
            "ids": tuple(self.some(self.ids, 9)),
            "states": states,
            "kind": self.dice.choice("abc"),
            "pool": "cpu",
            "tenant": "t",
            "since_ms": since_ms,
        }
        yield from (Filter(**{name: value}) for name, value in parts.items())
        yield Filter(**dict(self.dice.sample(sorted(parts.items()), 2)))


STEPS = (
    *[Walk.enqueue] * 4,
    *[Walk.lease] * 5,
    *[Walk.settle] * 6,
    *[Walk.start] * 2,
    *[Walk.beat] * 2,
    *[Walk.time_passes] * 2,
    Walk.begin,
    Walk.begin_anew,
    Walk.cancel,
    Walk.clear,
    Walk.die,
    Walk.break_kinds,
    Walk.fail,
    Walk.pause,
    Walk.prune,
    Walk.drop_outputs,
    Walk.renew,
    *[Walk.revive] * 2,
    Walk.take_over,
)
