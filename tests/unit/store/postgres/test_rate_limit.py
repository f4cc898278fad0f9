"""Wake-ups are limited: prompt after a pause, and no storm however many are sent."""

from jobpool.store.postgres.store import RateLimit


def test_after_a_pause_several_are_allowed_at_once():
    """And then none until time has passed."""
    limit = RateLimit(per_s=10, at_once=3)
    assert [limit.take(100.0) for _ in range(5)] == [True, True, True, False, False]
    assert not limit.take(100.09)
    assert limit.take(100.11)
    assert not limit.take(100.11)


def test_in_the_long_run_the_rate_is_kept():
    """A thousand requests a second get ten, and the few that were saved up."""
    limit = RateLimit(per_s=10, at_once=3)
    assert sum(limit.take(n / 1000) for n in range(10_000)) in range(101, 105)


def test_a_long_pause_saves_up_no_more_than_allowed_at_once():
    """A process that slept all night does not make up for it."""
    limit = RateLimit(per_s=10, at_once=3)
    limit.take(0.0)
    assert sum(limit.take(86_400.0) for _ in range(100)) == 3
