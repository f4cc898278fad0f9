"""PgQueuer on PostgreSQL: two processes, which run handlers on threads.

Safe: a batch of one, so that each end is written before the next job is taken.
Batched: the fast way; up to a batch of ends is written at once, after up to 0.1 s.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from typing import Any

import asyncpg
import pgqueuer
import rig
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

SAFE_BATCH, FAST_BATCH = 1, 200


class PgQueuer(rig.Contender):
    """A connection for the producer, processes of this program as workers."""

    def __init__(self, wish: dict[str, Any]) -> None:
        super().__init__(wish)
        self.loop = asyncio.new_event_loop()
        self.queries = self.loop.run_until_complete(self._connect())

    async def _connect(self) -> Queries:
        connection = await asyncpg.connect(os.environ["BENCH_POSTGRES"])
        queries = Queries(AsyncpgDriver(connection))
        if not await queries.has_table(queries.qbe.settings.queue_table):
            await queries.install()
        return queries

    def put(self, kind: str, argument: str) -> None:
        """Enqueue a job."""
        self.loop.run_until_complete(self.queries.enqueue(kind, argument.encode()))

    def put_many(self, kind: str, argument: str, count: int) -> None:
        """Enqueue a thousand at a time."""
        data = argument.encode()
        for begin in range(0, count, 1000):
            n = min(1000, count - begin)
            many = self.queries.enqueue([kind] * n, [data] * n, [0] * n)
            self.loop.run_until_complete(many)

    def work(self) -> None:
        """Start two workers."""
        batch = SAFE_BATCH if self.wish.get("safe", True) else FAST_BATCH
        for _ in range(self.workers):
            self.spawn(sys.executable, __file__, "--work", str(batch))


async def work(batch: int) -> None:
    """Run one worker."""
    connection = await asyncpg.connect(os.environ["BENCH_POSTGRES"])
    app = pgqueuer.PgQueuer(AsyncpgDriver(connection))

    def declare(kind: str) -> None:
        @app.entrypoint(kind)
        async def handle(job: pgqueuer.Job) -> None:
            argument = (job.payload or b"").decode()
            await asyncio.to_thread(rig.HANDLERS[kind], argument)

    for kind in rig.HANDLERS:
        declare(kind)
    await app.run(batch_size=batch, dequeue_timeout=timedelta(seconds=30))


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        asyncio.run(work(int(sys.argv[2])))
    else:
        rig.main(PgQueuer)
