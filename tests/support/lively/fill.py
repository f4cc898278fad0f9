"""Lets the shop work for an hour of a clock that the caller moves: a second or two.

All of it goes through the store's own operations, so each row is one that a supervisor
could have written.
"""

import random
from collections import Counter, defaultdict
from pathlib import Path

import msgspec

from jobpool.core.clock import SystemClock
from jobpool.core.jobs.job import NewJob, Progress, RequestReport
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import account
from jobpool.core.rules.policy import Policy
from jobpool.core.rules.quotas.lanes import lane_id
from jobpool.core.rules.run_report import (
    HostReport,
    KindReport,
    PoolReport,
    RunReport,
    StoreReport,
)
from jobpool.core.rules.usage.sketch import Measure, buckets_of
from jobpool.store.opening import open_store
from jobpool.store.records.alerts import AlertEvent, Found, Turn
from jobpool.store.records.reading import SketchRow
from jobpool.supervisor.machine.pools.scaling import AT_MOST
from support.lively import fates, orders
from support.lively.shop import GIB, KINDS, OF_NAME, RUNS, TENANTS, records
from support.store.new_file import place_new_file
from support.store.storing import ManualClock, started

STEP_S = 30
TTL_S = 7 * 86_400.0
"""Its supervisors count as alive for as long as somebody looks."""
SLOTS = {"cpu": 8, "io": 30, "big": 2}
LAST = (
    *(("pdf.render", 2), ("search.index", 1), ("img.thumbnail", 3), ("pdf.render", 1)),
    *(("feed.import", 4), ("stripe.charge", 12), ("mail.send", 40)),
    *(("img.thumbnail", 25), ("video.encode", 3)),
)
"""What is enqueued last: some of it runs, the rest waits."""


class Shop:
    """The shop at work.

    Args:
        store: where its jobs are; with *clock*.
        clock: manual.
        seed: of what happens.
    """

    def __init__(self, store, clock, seed=7):
        self.store = store
        self.clock = clock
        self.draw = random.Random(seed)
        self.fates = {}
        """What becomes of the jobs that do not fare as usual, by id."""
        self.used = defaultdict(Counter)
        self.running = []

    def open(self):
        """Let its supervisors start."""
        for run in RUNS:
            mine = [one for one in records() if one.pool in run.pools]
            self.store.begin_run(run, mine, TTL_S)

    def work(self, hours=1.0, share=1.0):
        """Let so much time pass, up to the present moment of the clock's owner.

        Args:
            hours: so much.
            share: of its usual number of jobs.
        """
        steps = round(hours * 3600 / STEP_S)
        for step in range(steps):
            with self.store.transaction():
                self._step(share, near_end=step >= steps - 6, at=step / steps)
            self.clock.advance(STEP_S)

    def _step(self, share, *, near_end, at):
        wave = share * (1.25 if at < 0.3 else 0.7 if at < 0.6 else 1.1)
        for kind in KINDS:
            mean = kind.a_minute * STEP_S / 60 * wave
            count = int(mean) + (self.draw.random() < mean % 1)
            self.enqueue(kind.name, count)
        self.end_all(at, mail_is_down=near_end)
        self.store.sample_waits(float(STEP_S))
        self.store.tick()

    def enqueue(self, name, count=1, fate=None, **options):
        """Store jobs of a kind; return their ids."""
        kind = OF_NAME[name]
        made = self.store.enqueue([self.new_job(kind, **options) for _ in range(count)])
        ids = [one.id for one in made]
        if fate is not None:
            self.fates |= dict.fromkeys(ids, fate)
        return ids

    def new_job(self, kind, **options):
        """Return a job as a client makes it."""
        number = self.draw.randrange(10_000, 99_999)
        values = {
            "path": f"uploads/{number}.jpg",
            "width": self.draw.choice([160, 320, 640]),
            "invoice": f"invoice-2026-{number}.pdf",
            "to": f"customer-{number}@example.net",
            "order": f"order-{number}",
            "sku": f"sku-{number}",
            "vendor": self.draw.choice(["northwind", "contoso", "fabrikam"]),
            "day": "2026-11-25",
        }
        payload = {one: values[one] for one in kind.arguments}
        given = {"tenant": self.draw.choice(TENANTS)} | options
        lane = lane_id(
            kind.pool, kind.name, given.get("priority", 0), given.get("tenant"), {}
        )
        return NewJob(
            kind=kind.name,
            pool=kind.pool,
            payload=given.pop("payload", None) or msgspec.json.encode(payload),
            lane=lane,
            **given,
        )

    def lease(self, limits=None):
        """Lease what may begin, to the supervisors of its pools."""
        found = []
        for run in RUNS:
            self.store.renew(run.id, TTL_S, anew=True)
            wanted = {pool: (limits or SLOTS)[pool] for pool in run.pools}
            kinds = {
                pool: [kind.name for kind in KINDS if kind.pool == pool]
                for pool in run.pools
            }
            found += self.store.lease(run.id, wanted, kinds).leases
        self.store.begin_attempts(
            [
                started(one, f"{one.pool}/{n}", self.clock.boottime_s())
                for n, one in enumerate(found)
            ]
        )
        return found

    def end_all(self, at=1.0, *, mail_is_down=False, limits=None):
        """Lease what may begin, and let it end."""
        reports, ends = [], []
        for lease in self.lease(limits):
            kind = OF_NAME[lease.kind]
            ending = self._ending(lease, kind, at, mail_is_down=mail_is_down)
            if kind.needs == ("mailgun",):
                bad = int(ending.outcome is not Outcome.SUCCEEDED)
                reports.append(RequestReport("mailgun", "", lease.token, 4, 4 * bad))
            self._note(kind, ending)
            ends.append(account(lease, Policy(), ending, now_ms=self.clock.utc_ms()))
        self.store.settle(ends)
        self.store.report_requests(reports)
        self.store.fold()

    def _ending(self, lease, kind, at, *, mail_is_down):
        if (fate := self.fates.get(lease.id)) is not None:
            return fate(self.draw, kind)
        if mail_is_down and kind.name == "mail.send":
            return fates.failed(
                self.draw, kind, "TimeoutError", "mailgun: no answer in 5 s"
            )
        return fates.drawn(self.draw, kind, is_bad_time=0.6 < at < 0.72)

    def _note(self, kind, ending):
        """Note what it has used, as supervisors do."""
        evidence, killed = ending.evidence, ending.outcome is Outcome.OUT_OF_MEMORY
        (memory,) = buckets_of([float(evidence.peak_rss_bytes)])
        (duration,) = buckets_of([evidence.duration_s * 1000])
        self.used[kind.name, Measure.MEMORY, memory][killed] += 1
        self.used[kind.name, Measure.DURATION, duration][False] += 1

    def publish_used(self):
        """Store what attempts have used, many times over: a week's worth."""
        self.store.add_sketches(
            [
                SketchRow(
                    kind=name,
                    pool=OF_NAME[name].pool,
                    measure=measure,
                    bucket=bucket,
                    attempts=40 * counts[False] + counts[True],
                    censored=counts[True],
                )
                for (name, measure, bucket), counts in self.used.items()
            ]
        )

    def report(self):
        """Let its supervisors say how they fare."""
        for n, run in enumerate(RUNS):
            pools = {
                pool: PoolReport(size=size, busy=busy, wanted=wanted, why=why)
                for pool, (size, busy, wanted, why) in {
                    "cpu": (4, 4 - n, 8, "CPU is full: does not grow"),
                    "io": (16, 13, 16, AT_MOST),
                    "big": (1, 1, 1, AT_MOST),
                }.items()
                if pool in run.pools
            }
            kinds = {
                kind.name: KindReport(ends_per_s=kind.a_minute / 60)
                for kind in KINDS
                if kind.pool in run.pools
            }
            self.store.put_report(
                run.id,
                RunReport(
                    pools=pools,
                    kinds=kinds,
                    host=HostReport(
                        cpu_busy=0.93 - 0.2 * n,
                        cpu_pressure=21.0,
                        memory_pressure=0.4,
                        io_pressure=2.0,
                        available_bytes=3 * GIB,
                    ),
                    store=StoreReport(commit_p50_ms=1.8, commit_p99_ms=7.5),
                ),
            )

    def begin_some(self):
        """Let attempts run that the picture finds running."""
        self.running = self.lease({"cpu": 4, "io": 9, "big": 1})
        self.clock.advance(2.2)
        news = []
        for n, lease in enumerate(self.running):
            kind = OF_NAME[lease.kind]
            share = 0.97 if n == 2 else self.draw.uniform(0.15, 0.6)
            news.append(
                Progress(
                    lease.id,
                    lease.token,
                    b'{"done":%d,"total":1904}' % (7 * n + 12),
                    None,
                    rss_bytes=round(share * kind.memory_bytes),
                    output=b"INFO opening\nINFO page %d of 1904\n" % (7 * n + 12),
                )
            )
        self.store.record(news)


def fill(store, clock, *, hours=1.0, share=1.0, seed=7):
    """Fill a new store with the life of a shop; return the shop."""
    shop = Shop(store, clock, seed)
    shop.open()
    orders.prepare(shop)
    shop.work(hours / 2, share)
    poison(shop)
    orders.approve(shop, 3)
    shop.work(hours / 2, share)
    orders.act(shop)
    for name, count in LAST:
        shop.enqueue(name, count)
    shop.enqueue("search.index", 6, delay_ms=3_600_000)
    shop.begin_some()
    shop.publish_used()
    shop.report()
    alert(store)
    return shop


def alert(store):
    """Open an incident, and tell somebody."""
    wrong = Found(
        rule="failure_rate",
        subject="stripe.charge",
        summary="attempts of stripe.charge fail 3.4 times as often as in the last day",
    )
    turn = store.watch().turn
    store.take_turn(
        Turn(number=turn, notes="{}", opened=(wrong,), receivers=("webhook",))
    )
    store.settle_alert(store.claim_alert(("webhook",), 60.0), AlertEvent.TAKEN)


def poison(shop):
    """Enqueue what will kill its child each time, and be quarantined."""
    for n in range(4):
        path = fates.POISON.format(n=n)
        shop.enqueue(
            "pdf.render",
            fate=lambda draw, kind, path=path: fates.out_of_memory(draw, kind, path),
            key=path.removesuffix(".pdf"),
            tenant="acme" if n % 2 else "globex",
            payload=b'{"invoice":"%s"}' % path.encode(),
        )


def lively_file(folder, *, hours=1.0, share=1.0, now_ms=None):
    """Return the path of a SQLite store with which a shop has worked until now."""
    now_ms = now_ms or SystemClock().utc_ms()
    path = Path(folder, "shop.db")
    place_new_file(path)
    clock = ManualClock(now_ms - round(hours * 3_600_000) - 2200)
    store = open_store(f"sqlite:///{path}", clock=clock)
    try:
        fill(store, clock, hours=hours, share=share)
    finally:
        store.close()
    return path
