"""A walk with schedules: two applications declare them, people put others."""

from jobpool.core.rules.schedules.policy import Overlap, Policy
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.store.records.operating import Filter
from support.store.model import POOL_OF
from support.store.walk import STEPS, Walk

NAMES = ("m", "n", "o", "p")
RULES = (
    Rule(every_ms=60_000),
    Rule(every_ms=1000),
    Rule(every_ms=600_000, from_end=True),
    Rule(cron="*/5 * * * *", tz="Asia/Kolkata", jitter_ms=20_000),
)


class ScheduleWalk(Walk):
    """As a walk, but most of it is about schedules."""

    @property
    def steps(self):
        return SCHEDULE_STEPS

    def facts(self):
        application = self.dice.choice(["shop", "shop", "till"])
        return {"application": application, "app_version": self.dice.choice("vw")}

    def declared(self, name):
        rule, kind = self.dice.choice(RULES), self.dice.choice("abc")
        chosen = {"pause_on_dead": self.dice.random() < 0.3}
        if not rule.from_end:
            chosen["overlap"] = self.dice.choice(list(Overlap))
            chosen["missed"] = self.dice.choice(["skip", "one", "all"])
        return Declared(
            name=name,
            kind=kind,
            pool=POOL_OF[kind],
            payload=self.dice.choice([b"{}", b'{"n":1}']),
            rule=rule,
            policy=Policy(**chosen),
            priority=self.dice.randint(-1, 1),
            tenant=self.maybe("t"),
            max_attempts=self.maybe(1, 3),
            timeout_s=self.maybe(2.5),
            expires_in_ms=self.maybe(30_000),
        )

    def tick(self):
        self.store.tick(self.dice.choice([1, 500]))
        self.ids = [job.id for job in self.store.find(Filter(), 10**6)] or [0]

    def put(self):
        self.store.put_schedule(self.declared(self.dice.choice(NAMES)))

    def publish(self):
        names = self.dice.sample(NAMES, self.dice.randint(0, 3))
        run_id = self.dice.choice(self.runs or ["unknown"])
        self.store.publish_schedules(run_id, [self.declared(name) for name in names])

    def hold(self):
        name, for_s = self.dice.choice(NAMES), self.maybe(1.0, 90.0)
        self.store.pause_schedule(name, for_s=for_s, who="ann", note=self.maybe("why"))

    def go_on(self):
        catch_up = self.dice.random() < 0.5
        self.store.resume_schedule(self.dice.choice(NAMES), catch_up=catch_up)

    def make_up(self):
        now_ms = self.clock.utc_ms()
        name, dry_run = self.dice.choice(NAMES), self.dice.random() < 0.3
        self.store.backfill(name, now_ms - 9000, now_ms - 1, dry_run=dry_run)

    def remove(self):
        self.store.remove_schedule(self.dice.choice(NAMES))

    def run_now(self):
        self.store.run_now(self.dice.choice(NAMES))

    def restart(self):
        self.store.restart_schedules(catch_up=self.dice.random() < 0.5)

    def read_all(self):
        super().read_all()
        self.store.schedules()
        for name in NAMES:
            self.store.schedules(name)
            self.store.ticks(name, self.dice.randint(1, 50))


SCHEDULE_STEPS = (
    *STEPS,
    *[ScheduleWalk.tick] * 15,
    *[Walk.time_passes] * 6,
    *[ScheduleWalk.put] * 4,
    *[ScheduleWalk.publish] * 3,
    *[ScheduleWalk.run_now] * 2,
    ScheduleWalk.hold,
    *[ScheduleWalk.go_on] * 2,
    ScheduleWalk.make_up,
    ScheduleWalk.remove,
    ScheduleWalk.restart,
)
