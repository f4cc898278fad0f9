"""Who enqueues the jobs, and who watches the leases, while hosts come and go."""

from __future__ import annotations

import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import psycopg

from jobpool.errors import OutcomeUnknown, StoreUnavailable
from support.site.witnessing import Witness

SAMPLE_EVERY_S = 0.05
RETRY_S = 0.1
SHARE_BY_LASTS_MS = {20: 30, 100: 25, 400: 20, 1500: 18, 5000: 6, 9000: 1}
OUTLASTS_BY_S = 3.0, 6.0
"""Longer than the TTL: some end just before or after a stopped supervisor goes on."""
URGENT = 10
"""Their priority: they begin before whatever has piled up."""


class Producer(Witness):
    """Enqueues jobs under keys, each again until it is told that it is there.

    Args:
        rng: decides how long they live.
        per_s: how many a second.
        ttl_s: of leases.
    """

    def __init__(self, rng: random.Random, per_s: float, ttl_s: float) -> None:
        super().__init__()
        self._rng, self._pause_s, self._ttl_s = rng, 1 / per_s, ttl_s
        self._outlasting = 0
        self.acknowledged: dict[str, int] = {}
        self.troubles: Counter[str] = Counter()

    def outlast(self, count: int) -> None:
        """Let the next jobs live longer than a lease that nobody renews."""
        self._outlasting = count

    def work(self) -> None:
        """Enqueue."""
        from many_hosts import app  # noqa: PLC0415 - reads the environment

        number = 0
        while not self._ends.wait(self._pause_s):
            key, (lasts_ms, priority) = f"job-{number}", self._next()
            call = app.step.options(key=key, priority=priority)
            while key not in self.acknowledged:
                try:
                    self.acknowledged[key] = call.enqueue(number, lasts_ms).id
                except (StoreUnavailable, OutcomeUnknown) as error:
                    self.troubles[type(error).__name__] += 1
                    self._ends.wait(RETRY_S)
            number += 1
        app.jobs.close()

    def _next(self) -> tuple[int, int]:
        """Return how long the next job lives, and how urgent it is."""
        if self._outlasting > 0:
            self._outlasting -= 1
            lasts_s = self._ttl_s + self._rng.uniform(*OUTLASTS_BY_S)
            return round(1000 * lasts_s), URGENT
        (lasts_ms,) = self._rng.choices(*zip(*SHARE_BY_LASTS_MS.items(), strict=True))
        return lasts_ms, 0


class Sample(NamedTuple):
    """A line of what the watcher reads: an open run, or one of its leases."""

    run: str
    pid: int
    at_ms: int
    until_ms: int
    token: int | None


SAMPLE = """
SELECT
  r.id, r.pid, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
  r.lease_until_ms, j.token
FROM {schema}.runs AS r
LEFT JOIN {schema}.jobs AS j ON j.state = 'leased' AND j.supervisor = r.id
WHERE r.ended_at_ms IS NULL
"""


class Watcher(Witness):
    """Writes down who holds what until when, as an operator sees it.

    Args:
        connect: opens a connection to the server that no proxy is in the way of.
        schema: of the store.
    """

    def __init__(self, connect: Callable[[], psycopg.Connection], schema: str) -> None:
        super().__init__()
        self._connect, self._query = connect, SAMPLE.format(schema=schema)
        self.leases: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.holders: dict[int, str] = {}
        self.run_of: dict[int, str] = {}
        """By the supervisor's process."""

    def work(self) -> None:
        """Sample twenty times a second, whenever the server is there."""
        while not self._ends.is_set():
            with (
                contextlib.suppress(psycopg.OperationalError),
                contextlib.closing(self._connect()) as connection,
            ):
                while not self._ends.wait(SAMPLE_EVERY_S):
                    self._note(map(Sample._make, connection.execute(self._query)))
            self._ends.wait(SAMPLE_EVERY_S)

    def _note(self, samples: Iterable[Sample]) -> None:
        for run, pid, at_ms, until_ms, token in samples:
            seen = self.leases[run]
            # One line per run and sample: its leases come with one line each.
            if not seen or seen[-1][0] < at_ms:
                seen.append((at_ms, until_ms))
            self.run_of[pid] = run
            if token is not None:
                self.holders[token] = run
