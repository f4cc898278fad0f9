"""Huey on SQLite with fsync: a job leaves the queue when it is fetched."""

from __future__ import annotations

import sys

import huey
import rig

queue = huey.SqliteHuey(
    filename=str(rig.directory() / "huey.db"), fsync=True, results=False, timeout=30
)
TASKS = {kind: queue.task(name=kind)(work) for kind, work in rig.HANDLERS.items()}


class Huey(rig.Contender):
    """Two processes that poll often."""

    def put(self, kind: str, argument: str) -> None:
        """Enqueue a task; Huey has no way to enqueue many at once."""
        TASKS[kind](argument)

    def work(self) -> None:
        """Start the consumer."""
        words = ["-k", "process", "-w", str(self.workers), "-d", "0.005", "-m", "0.02"]
        consumer = f"{sys.prefix}/bin/huey_consumer"
        self.spawn(consumer, "on_huey.queue", *words, "-C", "-q")


if __name__ == "__main__":
    import on_huey  # as the consumer knows it, not as __main__

    rig.main(on_huey.Huey)
