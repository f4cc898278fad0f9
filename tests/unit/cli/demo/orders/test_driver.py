"""What the shop's owner does while orders run."""

import io
from contextlib import closing
from functools import partial

import pytest
from rich.console import Console

from jobpool.cli.demo.orders.driver import _Shop
from jobpool.core.rules.circuit_breaker import BreakerState, Saved
from jobpool.store.opening import open_store


class Healthy:
    """A supervisor that runs."""

    def check(self):
        pass


def slowed(kind):
    return Saved(
        kind=kind, state=BreakerState.SLOWED, crashes=11, last_job=1, wait_s=60.0
    )


@pytest.fixture
def screen():
    return Console(file=io.StringIO(), width=200)


def test_orders_that_kill_do_not_slow_the_end_down(screen, tmp_path):
    """Once only they are left, each would wait twice as long as the one before."""
    with closing(open_store(f"sqlite:///{tmp_path}/demo.db")) as store:
        shop = _Shop(store, 0, screen)
        for _ in range(2):
            store.save_breakers([slowed("orders.ship")])
            looks = iter([False, True])
            shop.wait(Healthy(), partial(next, looks))
            assert store.breakers() == []
    assert screen.file.getvalue().count("orders.ship was slowed") == 1
