"""What people and flows do in the shop."""

from jobpool.core.jobs.flow import EXTERNAL, NewFlow, NewStep, When
from jobpool.core.jobs.job import JobState, NewJob
from jobpool.core.rules.schedules.policy import Overlap, Policy
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.operations.flows import Approve
from jobpool.operations.jobs import Retry
from jobpool.operations.operate import operate
from jobpool.operations.principal import Principal, Role
from jobpool.operations.queue import Pause, Resume
from jobpool.operations.quotas import SetQuota
from jobpool.operations.schedules import PauseSchedule
from jobpool.operations.selection import Selection
from jobpool.store.records.operating import Filter
from support.lively import fates

ADA = Principal(who="ada", role=Role.ADMIN, origin="jobpool on web-1")
GRACE = Principal(who="grace", role=Role.OPERATOR, origin="dashboard at web-1")
APPROVAL = EXTERNAL + "approve"
SCHEDULES = (
    (
        "reports/nightly",
        "report.nightly",
        "big",
        Rule(cron="30 2 * * *", tz="Europe/Berlin"),
    ),
    ("feeds/import", "feed.import", "io", Rule(every_ms=600_000)),
    ("search/rebuild", "search.index", "cpu", Rule(cron="*/20 * * * *")),
    ("mail/digest", "mail.send", "io", Rule(cron="0 8 * * 1-5", tz="America/New_York")),
    ("thumbs/sweep", "img.thumbnail", "cpu", Rule(cron="15 * * * *")),
)
ARGUMENTS = {
    "report.nightly": b'{"day":"2026-11-25"}',
    "feed.import": b'{"vendor":"northwind"}',
    "search.index": b'{"sku":"all"}',
    "mail.send": b'{"to":"staff@example.net"}',
    "img.thumbnail": b'{"path":"uploads/","width":320}',
    "video.encode": b'{"path":"uploads/clip.mov"}',
    "pdf.render": b'{"invoice":"invoice-2026-1.pdf"}',
    "stripe.charge": b'{"order":"order-1"}',
}
POOL_OF = {
    **dict.fromkeys(("report.nightly", "video.encode"), "big"),
    **dict.fromkeys(("feed.import", "mail.send", "stripe.charge"), "io"),
    **dict.fromkeys(("search.index", "img.thumbnail", "pdf.render"), "cpu"),
}


def prepare(shop):
    """Declare schedules and store flows."""
    for name, kind, pool, rule in SCHEDULES:
        shop.store.put_schedule(
            Declared(
                name=name,
                kind=kind,
                pool=pool,
                payload=ARGUMENTS[kind],
                rule=rule,
                policy=Policy(overlap=Overlap.BUFFER_ONE),
            )
        )
    shop.store.tick()
    for n in range(6):
        order(shop, f"order-{4200 + n}")


def order(shop, key, *, fate=None):
    """Store the flow of an order: some of it side by side, one step to approve."""
    steps = (
        step(0, "charge"),
        step(1, "invoice", 0),
        step(2, "pictures", 0),
        step(3, "check", 1, 2),
        step(4, "approve", 3, external=True, timeout_ms=86_400_000),
        step(5, "encode", 4),
        step(6, "mail", 4),
        step(7, "index", 5, 6),
        step(8, "restock", (0, When.FAILED)),
    )
    kinds = {
        0: "stripe.charge",
        1: "pdf.render",
        2: "img.thumbnail",
        3: "search.index",
        5: "video.encode",
        6: "mail.send",
        7: "search.index",
        8: "search.index",
    }
    members = [
        (number, plain_job(kind))
        for number, kind in kinds.items()
        for _ in range(5 if number == 2 else 1)
    ]
    members.append((4, NewJob(kind=APPROVAL, pool="external", payload=b"{}")))
    members.sort(key=lambda one: one[0])
    made = shop.store.enqueue_flow(
        NewFlow(name="order", steps=steps, key=key, tenant="acme"), members
    )
    if fate is not None:
        found = shop.store.find(Filter(flow=made.id, kind="stripe.charge"))
        shop.fates |= {job.id: fate for job in found}
    return made.id


def step(number, name, *after, **more):
    """Return a step after others."""
    edges = tuple(
        one if isinstance(one, tuple) else (one, When.SUCCEEDED) for one in after
    )
    return NewStep(number=number, name=name, after=edges, **more)


def plain_job(kind):
    """Return a job of a kind."""
    return NewJob(kind=kind, pool=POOL_OF[kind], payload=ARGUMENTS[kind], tenant="acme")


def approve(shop, count):
    """Let somebody approve what waits for it, of the oldest orders."""
    waiting = shop.store.find(
        Filter(kind=APPROVAL, states=(JobState.WAITING,)), limit=100
    )
    for job in waiting[::-1][:count]:
        operate(shop.store, GRACE, Approve(job=job.id))


def act(shop):
    """Do what people did lately, and store flows that are seen at work."""
    store = shop.store
    order(shop, "order-4250", fate=fates.declined)
    shop.end_all()
    order(shop, "order-4251", fate=fates.succeeded)  # Pages show it half done.
    shop.end_all()
    operate(store, ADA, SetQuota(quota="stripe", concurrency=6, note="Black Friday"))
    operate(store, GRACE, Pause(kind="video.encode", note="disk is full"))
    operate(store, GRACE, Resume(kind="video.encode"))
    operate(store, ADA, PauseSchedule(schedule="thumbs/sweep", note="moves to S3"))
    dead = store.find(Filter(kind="stripe.charge", states=(JobState.DEAD,)), limit=4)
    retried = Selection(ids=tuple(job.id for job in dead))
    operate(store, GRACE, Retry(jobs=retried, note="their cards were mended"))
