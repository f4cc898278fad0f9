"""What people see: why a job waits, who has what, and when it frees."""

from jobpool.core.jobs.job import Throttle
from jobpool.core.rules.quotas.definition import Need
from jobpool.core.rules.quotas.rules import Override
from support.store import quotas
from support.store.quotas import KIND, OTHER, enqueue, publish, quota, tenant
from support.store.storing import begin_run, lease, new_job

ENGINES = quotas.ENGINES


def test_a_job_says_which_full_quota_it_waits_for_and_who_has_it(store):
    """With what is used, of how many."""
    publish(store, quota(concurrency=2))
    made = enqueue(store, 3)
    lease(store)
    (wait,) = store.waits_of(made[2])
    assert (wait.quota, wait.value, wait.used, wait.cap) == ("stripe", "", 2, 2)
    assert wait.holders == tuple(made[:2])
    assert wait.opens_at_ms is None
    assert "2 of 2" in wait.why


def test_a_job_names_at_most_ten_holders(store):
    """The first ones."""
    publish(store, quota(concurrency=12))
    made = enqueue(store, 13)
    lease(store)
    (wait,) = store.waits_of(made[12])
    assert wait.holders == tuple(made[:10])


def test_a_job_says_when_a_rate_or_a_block_lets_it_begin(store, clock):
    """Each quota that holds it back, with its time."""
    publish(store, quota("a", rate="6/m", burst=1), quota("b", concurrency=9))
    made = enqueue(store, 2)
    lease(store)
    store.block_buckets([Throttle("b", "", 60_000)])
    waits = {one.quota: one for one in store.waits_of(made[1])}
    assert waits.keys() == {"a", "b"}
    assert 9_000 <= waits["a"].opens_at_ms - clock.utc_ms() <= 11_000
    assert waits["b"].opens_at_ms == clock.utc_ms() + 60_000


def test_a_job_says_that_its_tenant_or_quota_is_paused(store):
    """With the note."""
    publish(store, quota(concurrency=9))
    (job_id,) = enqueue(store, 1, tenant="acme")
    store.pause(tenant="acme", note="unpaid")
    store.pause(quota="stripe", note="down")
    whys = {one.quota: one.why for one in store.waits_of(job_id)}
    assert "unpaid" in whys["tenant"]
    assert "down" in whys["stripe"]


def test_a_job_that_no_quota_holds_back_waits_for_none(store):
    """Nor does one that is leased, or that is not there."""
    publish(store, quota(concurrency=1), needs={KIND: ["stripe"], OTHER: []})
    (plain,) = store.enqueue([new_job(OTHER)])
    (first,) = enqueue(store, 1)
    assert store.waits_of(plain.id) == []
    assert store.waits_of(first) == []
    lease(store)
    assert store.waits_of(first) == []
    assert store.waits_of(first + 999) == []


def test_quotas_are_listed_with_their_use(store):
    """Those that are published, with who needs them."""
    publish(
        store,
        quota("a", concurrency=2, per="args.vendor"),
        quota("b", rate="1/h", burst=9),
        needs={KIND: ["a", Need("b", 1)], OTHER: ["b"]},
    )
    enqueue(store, 3, values={"vendor": "x"})
    enqueue(store, 1, values={"vendor": "y"})
    lease(store)
    a, b = store.quotas()
    assert (a.name, a.quota.per, a.kinds) == ("a", "args.vendor", (KIND,))
    assert (a.used, a.waiting, a.blocked, a.paused) == (3, 1, 1, None)
    assert (b.name, b.kinds, b.used, b.waiting) == ("b", (OTHER, KIND), 0, 0)
    assert a.bucket is None
    assert [b.bucket] == store.buckets("b")


def test_a_quota_with_one_bucket_is_listed_with_it(store):
    """As soon as something has used it: with all the jobs that wait for it."""
    publish(store, quota(concurrency=2))
    (row,) = store.quotas()
    assert row.bucket is None
    enqueue(store, 5)
    lease(store)
    (row,) = store.quotas()
    assert [row.bucket] == store.buckets("stripe")
    assert (row.bucket.used, row.bucket.waiting) == (2, 3)


def test_buckets_are_listed_with_those_first_that_most_jobs_wait_for(store, clock):
    """At most as many as are wanted."""
    publish(store, quota(concurrency=1, per="args.vendor"))
    for vendor, count in (("a", 2), ("b", 4), ("c", 1)):
        enqueue(store, count, values={"vendor": vendor})
    lease(store)
    rows = store.buckets("stripe")
    assert [(r.value, r.used, r.cap, r.waiting) for r in rows] == [
        ("b", 1, 1, 3),
        ("a", 1, 1, 1),
        ("c", 1, 1, 0),
    ]
    assert [row.value for row in store.buckets("stripe", 1)] == ["b"]
    assert store.buckets("other") == []
    store.block_buckets([Throttle("stripe", "c", 5_000)])
    (blocked,) = [row for row in store.buckets("stripe") if row.value == "c"]
    assert blocked.blocked_until_ms == clock.utc_ms() + 5_000
    assert blocked.opens_at_ms == clock.utc_ms() + 5_000
    assert blocked.reason is not None


def test_a_bucket_says_how_much_of_its_rate_is_free(store):
    """And when the next permit comes, once there is none."""
    publish(store, quota(rate="1/h", burst=2))
    enqueue(store, 9)
    granted = len(lease(store))
    (row,) = store.buckets("stripe")
    assert granted >= 1
    assert row.free == 0
    assert row.opens_at_ms is not None
    assert row.cap is None


def test_what_is_blocked_is_counted_apart_from_what_could_run(store):
    """In what waits, and in the statistics."""
    publish(store, quota(concurrency=1), needs={KIND: ["stripe"], OTHER: []})
    enqueue(store, 4)
    lease(store)
    store.enqueue([new_job(OTHER)] * 2)
    lease(store, limit=0)
    waiting = {row.kind: (row.jobs, row.blocked) for row in store.waiting()}
    assert waiting == {KIND: (3, 3), OTHER: (2, 0)}
    stats = {(row.kind, row.state): row.blocked for row in store.stats()}
    assert stats == {
        (KIND, "runnable"): 3,
        (KIND, "leased"): 0,
        (OTHER, "runnable"): 0,
    }


def test_tenants_are_listed_with_their_rules_and_their_use(store):
    """Published ones and set ones."""
    publish(store, needs={}, tenants=[tenant("*", concurrency=1)])
    store.set_tenant(tenant("acme", concurrency=2), who="ann")
    store.enqueue([new_job(tenant="acme")] * 3)
    lease(store)
    everybody, acme = store.tenants()
    assert (everybody.name, everybody.tenant.concurrency) == ("*", 1)
    assert (acme.name, acme.used, acme.waiting, acme.who) == ("acme", 2, 1, "ann")


def test_a_set_quota_that_nobody_publishes_is_listed_all_the_same(store):
    """Else one could not see that it was set."""
    begin_run(store)
    store.set_quota(Override(quota="stripe", concurrency=1))
    (row,) = store.quotas()
    assert (row.name, row.quota, row.override.concurrency) == ("stripe", None, 1)


def test_a_held_back_job_is_found_under_its_state_as_ever(store):
    """Waiting for a quota is no state of a job."""
    publish(store, quota(concurrency=1))
    made = enqueue(store, 2)
    lease(store)
    assert [store.get(one).state.value for one in made] == ["leased", "runnable"]
