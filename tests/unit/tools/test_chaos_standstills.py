"""A chaos run knows when its machine stood still: leases may lapse then."""

from types import SimpleNamespace

from chaos.accounts import AWAY
from chaos.play import pauses, standstills


def test_a_machine_that_stands_still_for_long_keeps_supervisors_away():
    """It is known when that was, by the clock that all accounts go by."""
    running = SimpleNamespace(pauses=lambda: [(1.0, 1.2), (10.0, 14.0)])
    (blow,) = standstills(pauses(running))
    assert blow.sort in AWAY
    assert blow.until_ns - blow.from_ns == 4_000_000_000
