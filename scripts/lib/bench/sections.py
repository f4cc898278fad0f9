"""What is measured of which system: each section is a list of trials, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

DURABLE = ("jobpool", "celery", "huey")
ON_POSTGRES = ("jobpool-postgresql", "pgqueuer", "pgqueuer-batched")
IN_MEMORY = ("pebble", "loky", "executor")
FRESH_COUNT_SHARE = 0.02


class Trial(NamedTuple):
    """One scenario of one system; a round runs each once."""

    what: str
    system: str
    wish: Mapping[str, object]


class Scale(NamedTuple):
    """How much is measured."""

    jobs: int
    """No-op jobs for the fastest; slow systems and large payloads get fewer."""
    kills: int
    picks: int
    seconds: float
    rows: int
    """The largest backlog and history."""
    rounds: int


QUICK = Scale(jobs=4000, kills=3, picks=20, seconds=1.0, rows=100_000, rounds=1)
FULL = Scale(jobs=10_000, kills=8, picks=100, seconds=3.0, rows=1_000_000, rounds=3)
SPEED = {
    "celery": 0.15,
    "huey": 0.1,
    "rq": 0.015,
    "pgqueuer": 0.1,
    "jobpool-postgresql": 0.5,
    "pgqueuer-batched": 0.5,
}
"""The share of the jobs that a slower system gets; other systems get all."""


def throughput(scale: Scale) -> list[Trial]:
    """Drain a backlog with two workers."""

    def drains(
        what: str, systems: tuple[str, ...], share: float, **wish: object
    ) -> list[Trial]:
        return [
            Trial(
                what,
                system,
                {
                    "scenario": "drain",
                    "count": max(40, int(scale.jobs * share * SPEED.get(system, 1))),
                    **wish,
                },
            )
            for system in systems
        ]

    everybody = ("jobpool", "limit", "celery", "huey", *ON_POSTGRES, *IN_MEMORY)
    of_payload = ("jobpool", "limit", "celery", "huey", "pebble", "executor")
    some = ("jobpool", "limit", "celery", "pebble")
    fresh = FRESH_COUNT_SHARE
    return [
        *drains("no-op", everybody, 1, kind="noop"),
        *drains("fresh child", ("jobpool",), fresh, kind="noop", fresh=True),
        *drains("fresh child", ("rq",), 1, kind="noop", fresh=True),
        *drains("fresh child", ("pebble",), fresh, kind="noop", fresh=True),
        *drains("fresh child", ("executor",), fresh, kind="noop", fresh=True),
        *drains("1 KiB", of_payload, 0.5, kind="noop", argument="x" * 2**10),
        *drains("100 KiB", of_payload, 0.03, kind="noop", argument="x" * 100 * 2**10),
        *drains("busy 1 ms", some, 0.2, kind="spin", argument="1"),
        *drains("busy 50 ms", some, 0.01, kind="spin", argument="50"),
        *drains(
            "16 sleep 100 ms",
            ("jobpool",),
            0.04,
            kind="nap",
            argument="100",
            workers=16,
        ),
    ]


def enqueue(scale: Scale) -> list[Trial]:
    """Enqueue jobs singly, in bulk, and by several producers at once."""
    singly = ("jobpool", "limit", "celery", "rq", "huey", "jobpool-postgresql")
    crowd = {"scenario": "enqueue", "seconds": scale.seconds}
    many = {"scenario": "bulk", "count": scale.jobs}
    return [
        *(Trial("single", each, {**crowd, "producers": 1}) for each in singly),
        *(
            Trial(f"{count} producers", each, {**crowd, "producers": count})
            for count in (2, 4, 8, 16)
            for each in ("jobpool", "huey")
        ),
        *(
            Trial("bulk", each, many)
            for each in ("jobpool", "limit", "rq", *ON_POSTGRES[:2])
        ),
    ]


def pick_up(scale: Scale) -> list[Trial]:
    """From the enqueue call to the handler's first line, all idle."""
    wish = {"scenario": "pick_up", "count": scale.picks, "every_s": 0.1}
    others = ("limit", "celery", "rq", "huey", "pebble")
    systems = ("jobpool", *others, *ON_POSTGRES[:2])
    return [Trial("pick-up", system, wish) for system in systems]


def kills(scale: Scale) -> list[Trial]:
    """From the limit of a loop to the next job in its slot."""
    wish = {"scenario": "after", "kind": "hang", "count": scale.kills, "workers": 1}
    systems = ("jobpool", "celery", "rq", "pebble")
    return [Trial("slot back after the limit", system, wish) for system in systems]


def pace(scale: Scale) -> list[Trial]:
    """Many slots whose jobs sleep: how soon each gets its next one."""
    return [
        Trial(
            f"{slots} sleep 100 ms",
            system,
            {
                "scenario": "drain",
                "kind": "nap",
                "argument": "100",
                "workers": slots,
                "count": slots * max(5, scale.jobs // 500),
            },
        )
        for slots in (64, 128)
        for system in ("jobpool", "executor")
    ]


def fresh(scale: Scale) -> list[Trial]:
    """A new process for every job, beside two processes that only fork."""
    wish = {"scenario": "drain", "kind": "noop", "fresh": True}
    count = int(scale.jobs * FRESH_COUNT_SHARE)
    return [
        *(
            Trial("fresh child", system, {**wish, "count": share * count, **more})
            for system, share, more in (
                ("jobpool", 2, {"are_children_asked": True}),
                ("forks", 10, {}),
                ("rq", 1, {}),
            )
        ),
        Trial("parts", "forks", {"scenario": "parts", "count": count}),
    ]


def recovery(scale: Scale) -> list[Trial]:
    """From a segfault to the next job in its slot."""
    wish = {"scenario": "after", "kind": "crash", "count": scale.kills, "workers": 1}
    systems = ("jobpool", "celery", "rq", "pebble")
    return [Trial("slot back after a segfault", system, wish) for system in systems]


def memory(scale: Scale) -> list[Trial]:  # noqa: ARG001 - once a round is enough
    """How much a hoarder gets under a limit of 256 MiB."""
    wish = {"scenario": "overshoot", "workers": 1}
    return [Trial("of 256 allowed", system, wish) for system in ("jobpool", "celery")]


def idle(scale: Scale) -> list[Trial]:
    """What all processes cost while there are no jobs."""
    wish = {"scenario": "idle", "seconds": 3 * scale.seconds}
    return [
        *(
            Trial("2 slots", system, wish)
            for system in ("jobpool", "celery", "rq", "huey", "pebble")
        ),
        Trial("20 slots", "jobpool", {**wish, "workers": 20}),
    ]


SECTIONS: dict[str, Callable[[Scale], list[Trial]]] = {
    "throughput": throughput,
    "enqueue": enqueue,
    "pick-up": pick_up,
    "pace": pace,
    "fresh": fresh,
    "kills": kills,
    "memory": memory,
    "recovery": recovery,
    "idle": idle,
}
FROM_FIGURES = {
    "kills": ("kills",),
    "memory": ("memory",),
    "recovery": ("recovery",),
}
"""Sections of scripts/figures about jobpool alone; part of full runs."""
NEVER = {
    "memory: rq, huey, pebble, loky, executor": "they have no limit on memory",
    "kills: huey, pgqueuer, loky, executor": "they have no limit on a job's time",
    "recovery: loky, executor": "a death breaks the pool, and with it all its calls",
    "recovery: huey, pgqueuer": "the crashed slot does not come back within seconds, "
    "or at all",
    "fresh child: celery, huey, pgqueuer, loky": "they reuse, as they are run here",
    "1 MiB results, 1 GiB of output beside others": "see scripts/figures --only "
    "neighbours",
}
