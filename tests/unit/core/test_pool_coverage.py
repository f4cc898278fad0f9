"""An application's pools and those that a supervisor serves: what is reported."""

from __future__ import annotations

import msgspec
import pytest

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import HOOK_DEAD, HandlerSpec
from jobpool.core.events.pools import PoolsLeft, PoolUnused
from jobpool.core.events.sentences import parts
from jobpool.core.pool_coverage import pool_events, refuse_without_kinds
from jobpool.errors import ConfigError
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.registry import Registry
from support.machine.world import World, pool


def said(pools: str, kinds: str) -> list[str]:
    """Return the messages about pools served, and about those of kinds declared."""
    settings = World(*map(pool, pools.split())).settings
    return ["; ".join(parts(e)) for e in pool_events(settings, report(kinds), 0)]


def report(pools: str) -> AppReport:
    """Return what an application with a kind in each of these pools declares."""
    return AppReport(
        handlers=tuple(
            HandlerSpec(kind=f"k{n}", pool=name) for n, name in enumerate(pools.split())
        ),
        base_rss_bytes=2**20,
    )


@pytest.mark.parametrize(
    ("served", "used", "words"),
    [
        ("cpu io", "cpu io", []),
        ("cpu io", "cpu", []),
        (
            "cpu io",
            "",
            ["pool cpu is used by no kind of the application; it has none", "pool io"],
        ),
        ("cpu", "cpu io io", ["pools left to other supervisors: io (2 kinds)"]),
        ("io", "gpu cpu io", ["left to other supervisors: cpu (1 kind), gpu (1 kind)"]),
        (
            "cpu ioo",
            "cpu io",
            [
                "pools left to other supervisors: io (1 kind)",
                "pool ioo is used by no kind of the application; did you mean 'io'?",
            ],
        ),
        (
            "cpu big",
            "cpu",
            ["pool big is used by no kind of the application; expected one of"],
        ),
        ("cpu io", "cpu gpu", ["gpu (1 kind)", "pool io is used by no kind"]),
    ],
)
def test_unserved_and_unknown_pools_are_reported(
    served: str, used: str, words: list[str]
) -> None:
    """A supervisor that serves some pools says so.

    A misspelt pool shows in these lines.
    """
    found = said(served, used)
    assert len(found) == len(words)
    for line, part in zip(found, words, strict=True):
        assert part in line


def test_hooks_do_not_count_as_kinds() -> None:
    """Where jobpool's own jobs run does not say which pools an application has."""
    handlers = (*report("cpu").handlers, HandlerSpec(kind=HOOK_DEAD, pool="io"))
    settings = World(pool("cpu")).settings
    assert not list(pool_events(settings, AppReport(handlers=handlers), 0))


def test_pools_without_any_kind_are_refused() -> None:
    """With the nearest name, and a command line that works."""
    settings = World(pool("cpuu")).settings
    with pytest.raises(ConfigError, match=r"pool cpuu.*cpu=N,io=N.*mean 'cpu'\?"):
        refuse_without_kinds(settings, report("cpu io"))
    refuse_without_kinds(settings, AppReport())


def test_kinds_of_other_pools_are_neither_leased_nor_published() -> None:
    """Their own supervisors run them and publish them."""
    registry = Registry(World(pool("cpu")).settings, report("cpu io"))
    assert registry.kinds == {"cpu": ("k0",)}
    assert [record.kind for record in registry.records()] == ["k0"]
    assert registry.knows("k1")  # should one of its jobs be in our pool


def test_pools_are_reported_once_and_again_when_a_reload_changes_them() -> None:
    """Not by each zygote, and not each time that one is lost."""
    world = World(pool("cpu"), pool("io"))
    for name in ("cpu", "io"):
        world.step(inp.ZygoteLoaded(name, report("cpu io gpu")))
    world.step(inp.ZygoteLost("cpu", "killed"))
    world.step(inp.ZygoteLoaded("cpu", report("cpu io gpu")))
    world.step(inp.Reload(world.settings))
    world.step(inp.ZygoteLoaded("cpu", report("cpu io gpu"), reloading=True))
    assert [e.pools for e in world.said if isinstance(e, PoolsLeft)] == [{"gpu": 1}]
    world.step(inp.Reload(world.settings))
    world.step(inp.ZygoteLoaded("cpu", report("cpu io big"), reloading=True))
    assert [e.pools for e in world.said if isinstance(e, PoolsLeft)][1:] == [{"big": 1}]
    assert not [e for e in world.said if isinstance(e, PoolUnused)]


@pytest.mark.parametrize(
    ("pools", "budget_mib", "words"),
    [
        ("cpu io", 2048, []),
        ("cpu io", 600, ["1 of 4 slots can be used at once"]),
        ("cpu io", 1600, ["3 of 4 slots can be used at once"]),
        ("cpu io", 100, ["1 of 4 slots can be used at once"]),
        ("cpu io", None, []),
    ],
)
def test_slots_that_do_not_fit_into_the_memory_budget_are_reported(
    pools: str, budget_mib: int | None, words: list[str]
) -> None:
    """By the limits of 512 MiB; one job runs whatever its limit."""
    settings = msgspec.structs.replace(
        World(*map(pool, pools.split())).settings,
        memory_budget_bytes=None if budget_mib is None else budget_mib * 2**20,
    )
    events = pool_events(settings, report(pools), 0)
    texts = ["; ".join(parts(event)) for event in events]
    assert len(texts) == len(words)
    for text, word in zip(texts, words, strict=True):
        assert word in text
