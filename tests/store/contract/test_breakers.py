"""Kinds that crash in a row, in every store."""

from jobpool.core.rules.circuit_breaker import BreakerState, Saved


def saved(kind="shop.thumbnail", **facts):
    given = {"state": BreakerState.OPEN, "crashes": 20, "last_job": 7, "wait_s": 60.0}
    return Saved(kind=kind, **{**given, **facts})


def test_breakers_are_kept_and_forgotten(store, clock):
    """Their pauses go by the store's clock; a kind without crashes is forgotten."""
    store.save_breakers([saved(), saved("a", state=BreakerState.CLOSED, crashes=1)])
    clock.advance(20)
    found = store.breakers()
    assert found == [
        saved("a", state=BreakerState.CLOSED, crashes=1, wait_s=40.0),
        saved(wait_s=40.0),
    ]
    clock.advance(1000)
    assert store.breakers()[1].wait_s == 0
    store.save_breakers([saved(crashes=21, wait_s=1.0), saved("a", crashes=0)])
    assert store.breakers() == [saved(crashes=21, wait_s=1.0)]
    store.save_breakers([saved("never", crashes=0)])
    assert len(store.breakers()) == 1
