"""How many children a pool should have, and why, by what it and its host are like."""

from __future__ import annotations

import pytest

from jobpool.core.config.settings import ScaleOn
from jobpool.core.rules.run_report import HostReport
from jobpool.supervisor.machine.pools import scaling
from jobpool.supervisor.machine.pools.scaling import PoolView, wanted_size

GIB = 2**30
HOST = {"cpu_busy": 0.1, "available_bytes": 64 * GIB}
BUSY_CPU = {"cpu_busy": 0.98}
WAITING_CPU = {"cpu_pressure": 40.0}
NO_GROWTH = "not grown: "


def view(**fields: object) -> PoolView:
    """Return a pool of 2 in a range of 1 to 8 on an idle host, changed as given."""
    base: dict[str, object] = {
        "size": 2,
        "size_min": 1,
        "size_max": 8,
        "busy": 2,
        "due": 0,
        "idle_for_s": 0.0,
        "idle_shrink_s": 60.0,
        "child_bytes": GIB,
        "age_target_s": 10.0,
    }
    names = HostReport.__struct_fields__
    host = {**HOST, **{name: fields.pop(name) for name in names if name in fields}}
    return PoolView(**(base | fields), host=HostReport(**host))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "size", "why"),
    [
        ({}, 2, scaling.IN_USE),
        ({"due": 1}, 3, scaling.GREW),
        ({"due": 100}, 4, scaling.GREW),
        ({"due": 100, "size": 7, "busy": 7}, 8, scaling.GREW),
        ({"due": 100, "size": 8, "busy": 8}, 8, scaling.AT_MOST),
        ({"due": 100, "busy": 1}, 2, scaling.IDLE),
        ({"due": 100, **BUSY_CPU}, 2, "the processors are busy"),
        ({"due": 100, **WAITING_CPU}, 2, "CPU pressure 40 %"),
        ({"due": 100, "available_bytes": GIB}, 2, "1GiB are free, a child may use"),
        ({"due": 100, "available_bytes": 2 * GIB}, 3, scaling.GREW),
        ({"due": 100, "memory_pressure": 12.0}, 2, "memory pressure 12 %"),
        ({"due": 100, "memory_pressure": 9.0}, 4, scaling.GREW),
        ({"due": 100, "io_pressure": 90.0}, 4, scaling.GREW),
        ({"due": 100, "swapping": True}, 2, "this host swaps"),
        ({"due": 100, "swap_used_bytes": 8 * GIB}, 4, scaling.GREW),
        ({"due": 100, "holds": "suspects"}, 2, "its jobs wait for suspects"),
        ({"busy": 1, "idle_for_s": 61.0}, 1, scaling.SHRANK),
        ({"busy": 0, "idle_for_s": 61.0, "size": 1}, 1, scaling.AT_LEAST),
        ({"busy": 1, "idle_for_s": 30.0}, 2, scaling.IDLE),
        ({"size": 20, "busy": 20}, 8, scaling.IN_USE),
        ({"size": 0, "busy": 0}, 1, scaling.AT_LEAST),
    ],
)
def test_a_pools_size_follows_its_load_and_the_host(
    fields: dict[str, object], size: int, why: str
) -> None:
    """It grows for waiting jobs as the host allows, shrinks by one, stays in range."""
    found = wanted_size(view(**fields))
    assert (found.size, why in found.why) == (size, True), found
    assert found.why.startswith(NO_GROWTH) == (why not in vars(scaling).values())


@pytest.mark.parametrize("scale_on", ScaleOn)
@pytest.mark.parametrize(
    ("fields", "grow"),
    [
        ({"oldest_s": 60.0}, {"cpu", "backlog", "age", "memory"}),
        ({"oldest_s": 60.0, **BUSY_CPU}, {"backlog", "age", "memory"}),
        ({"oldest_s": 60.0, **WAITING_CPU}, {"backlog", "age", "memory"}),
        ({"oldest_s": 9.0}, {"cpu", "backlog", "memory"}),
        ({"oldest_s": 60.0, "available_bytes": GIB}, set()),
        ({"oldest_s": 60.0, "memory_pressure": 11.0}, set()),
        ({"oldest_s": 60.0, "swapping": True}, set()),
        ({"oldest_s": 60.0, "holds": "memory"}, set()),
        ({"oldest_s": 60.0, "due": 0}, set()),
    ],
)
def test_a_pool_follows_its_own_bottleneck_and_never_grows_into_pressure(
    fields: dict[str, object], grow: set[str], scale_on: ScaleOn
) -> None:
    """Only `cpu` minds the processors, and only `age` for how long a job has waited."""
    found = wanted_size(view(**{"due": 5, "scale_on": scale_on, **fields}))
    assert (found.size == 4) == (scale_on in grow), found
    assert found.size in {2, 4}


def test_what_holds_a_pool_back_is_told_beside_what_it_wants() -> None:
    """As many as have work, within its range."""
    assert wanted_size(view(due=3, swapping=True)).wanted == 5
    assert wanted_size(view(due=300, swapping=True)).wanted == 8
    assert wanted_size(view()).wanted == 2


def test_new_children_are_counted_with_the_memory_that_they_have_not_used_yet() -> None:
    """Else a pool would grow each second by what is free before it is used."""
    fields = {"due": 100, "scale_on": ScaleOn.MEMORY, "available_bytes": 4 * GIB}
    assert wanted_size(view(**fields)).size == 4
    assert wanted_size(view(**fields, new_children=2)).size == 3
    assert wanted_size(view(**fields, new_children=3)).size == 2
