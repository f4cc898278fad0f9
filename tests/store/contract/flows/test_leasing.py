"""What a lease says of the members of flows that it lets begin."""

from jobpool.core.jobs.flow import When
from support.store.flows import member, new_flow, step
from support.store.storing import KINDS, lease_one, succeeded


def _leased(store):
    """Return the whole answer to a supervisor that has kept renewing."""
    store.renew("run-1", 60.0, anew=True)
    return store.lease("run-1", {"cpu": 10}, KINDS)


def test_a_lease_says_in_which_pools_members_may_begin_by_now(store):
    """Others are woken for those that it did not ask for."""
    members = [member(0), member(1), member(1, pool="io")]
    store.enqueue_flow(new_flow(step(0), step(1, 0)), members)
    first = lease_one(store)
    assert _leased(store).opened == set()
    store.settle([succeeded(first)])
    batch = _leased(store)
    assert batch.opened == {"cpu", "io"}
    assert [one.pool for one in batch.leases] == ["cpu"]
    assert _leased(store).opened == set()


def test_what_follows_an_expiry_is_not_left_for_later(store, clock):
    """A burst ends when nothing is due: it may not end before the flow has."""
    members = [member(0, expires_in_ms=1000), member(1)]
    store.enqueue_flow(new_flow(step(0), step(1, (0, When.FINISHED))), members)
    clock.advance(2)
    batch = _leased(store)
    if not batch.leases:
        assert batch.next_due_in_s == 0
        batch = _leased(store)
    assert [one.payload for one in batch.leases] == [b'{"step":1}']


def test_members_begin_by_their_priority_at_once_and_once_they_are_reached(store):
    """That of a step that was reached later is no lower for it."""
    first = [member(0, priority=-7), member(0, priority=3)]
    then = [member(1, priority=-7), member(1, priority=9)]
    store.enqueue_flow(new_flow(step(0), step(1, 0)), [*first, *then])
    for expected in ([3, -7], [9, -7]):
        leases = [lease_one(store), lease_one(store)]
        assert [one.priority for one in leases] == expected
        store.settle([succeeded(one) for one in leases])
