"""RQ: a fork for every job, as it is by default; Redis."""

from __future__ import annotations

import os
import sys

import redis
import rig
import rq


class Rq(rig.Contender):
    """Two workers; a job leaves the queue when it is fetched."""

    def __init__(self, wish: dict[str, object]) -> None:
        super().__init__(wish)
        self.url = "unix://" + os.environ["BENCH_REDIS"]
        self.queue = rq.Queue(connection=redis.Redis.from_url(self.url))

    def put(self, kind: str, argument: str) -> None:
        """Enqueue a job."""
        limit_s = rig.HANG_LIMIT_S if kind == "hang" else 60
        self.queue.enqueue(
            rig.HANDLERS[kind], argument, job_timeout=limit_s, result_ttl=0
        )

    def put_many(self, kind: str, argument: str, count: int) -> None:
        """Enqueue a thousand at a time."""
        work = rig.HANDLERS[kind]
        for begin in range(0, count, 1000):
            self.queue.enqueue_many(
                rq.Queue.prepare_data(work, (argument,), timeout=60, result_ttl=0)
                for _ in range(min(1000, count - begin))
            )

    def work(self) -> None:
        """Start two workers."""
        for _ in range(self.workers):
            words = ["worker", "--url", self.url, "--quiet"]
            self.spawn(f"{sys.prefix}/bin/rq", *words)


if __name__ == "__main__":
    rig.main(Rq)
