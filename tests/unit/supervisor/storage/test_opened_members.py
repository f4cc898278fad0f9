"""Who is woken for members of flows that a lease has opened."""

from __future__ import annotations

import msgspec
import pytest

from jobpool.core.jobs.job import Lease
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from support.machine.store_rig import PATIENCE_S, Rig, leased


def in_pool(pool: str, token: int, *, step: int | None) -> Lease:
    """Return a lease of a job in a pool."""
    return msgspec.structs.replace(leased(token), pool=pool, step=step)


@pytest.mark.parametrize(
    ("opened", "grants", "are_woken"),
    [
        ("", [("cpu", 1)], False),
        ("cpu", [("cpu", 1)], False),
        ("cpu", [("cpu", 1), ("cpu", 1)], True),
        ("cpu", [("cpu", 1), ("cpu", None)], True),
        ("cpu", [("cpu", None)], True),
        ("cpu", [], True),
        ("io", [("cpu", 1)], True),
        ("cpu io", [("cpu", 1)], True),
    ],
    ids=[
        "nothing was opened",
        "it has taken what there was",
        "it could not take more",
        "it could not take more, beside others",
        "it has taken others",
        "it has taken none",
        "it did not ask for that pool",
        "it did not ask for one of the pools",
    ],
)
def test_others_are_woken_for_what_a_lease_opens_and_does_not_take(
    opened: str, grants: list[tuple[str, int | None]], *, are_woken: bool
) -> None:
    """In a chain on one host each hop would wake all others, for nothing."""
    rig = Rig()
    rig.store.opened = frozenset(opened.split())
    rig.store.grants = [
        in_pool(pool, token, step=step)
        for token, (pool, step) in enumerate(grants, start=1)
    ]
    rig.thread.leave([cmd.Lease({"cpu": 2})])
    rig.wait_for(inp.Granted)
    rig.thread.close(PATIENCE_S)
    assert bool(rig.store.wakes) is are_woken
