"""A wake-up on PostgreSQL reaches every listener, and is only a hint."""

HEARD_S_MAX = 60.0


def test_a_wake_up_is_received_by_another_store(store_factory):
    """The first call starts listening: an earlier wake-up is not received."""
    listener, other = store_factory(), store_factory()
    assert listener.wait_for_wake(HEARD_S_MAX) is True
    assert listener.wait_for_wake(0.01) is False
    other.wake()
    assert listener.wait_for_wake(HEARD_S_MAX) is True
    assert listener.wait_for_wake(0.01) is False
