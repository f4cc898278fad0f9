"""What tests of schedules share: how one is put, and what its jobs do."""

from jobpool.core.rules.schedules.policy import Policy
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import Declared
from support.store.storing import ended, lease_one, succeeded

MINUTE_MS = 60_000
YEAR_S = 366 * 86400
DAILY = Rule(cron="0 2 * * *", tz="Europe/Berlin")


def declared(name="poll", rule=None, *, every_ms=MINUTE_MS, of=None, **policy):
    return Declared(
        name=name,
        kind="shop.thumbnail",
        pool="cpu",
        payload=b'{"n":1}',
        rule=rule or Rule(every_ms=every_ms),
        policy=Policy(**policy),
        **(of or {}),
    )


def put(store, *names, **options):
    """Put schedules, and let a step plan them."""
    for name in names or ("poll",):
        store.put_schedule(declared(name, **options))
    store.tick()


def states(store, name="poll"):
    """What has become of the ticks, oldest first."""
    return [tick.state for tick in store.ticks(name)][::-1]


def run_one(store):
    """Let the only job that waits succeed."""
    granted = lease_one(store)
    store.settle([succeeded(granted)])
    return granted


def fail_one(store, clock):
    """Let the only job that waits fail, so that it waits for a retry."""
    granted = lease_one(store)
    store.settle([ended(granted, now_ms=clock.utc_ms())])
    return granted
