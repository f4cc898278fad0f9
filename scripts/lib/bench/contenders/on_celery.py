"""Celery: prefork, late acknowledgement, nothing lost with a worker; Redis."""

from __future__ import annotations

import os
import sys

import celery
import rig

app = celery.Celery("bench", broker="redis+socket://" + os.environ["BENCH_REDIS"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=False,  # else a job that crashes does so forever
    task_ignore_result=True,
    worker_disable_rate_limits=True,
    worker_max_memory_per_child=rig.MEMORY_LIMIT_MIB * 1024,
    broker_connection_retry_on_startup=True,
)
TASKS = {
    kind: app.task(name=kind, time_limit=rig.HANG_LIMIT_S if kind == "hang" else 60)(
        handler
    )
    for kind, handler in rig.HANDLERS.items()
}


class Celery(rig.Contender):
    """Set up as its documentation advises if no job may be lost."""

    def put(self, kind: str, argument: str) -> None:
        """Send a task; Celery has no way to send many at once."""
        TASKS[kind].delay(argument)

    def work(self) -> None:
        """Start a worker with two processes."""
        words = [
            "worker",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
        ]
        words += ["--loglevel=ERROR", f"--concurrency={self.workers}"]
        words += ["--max-tasks-per-child=1"] if self.fresh else []
        self.spawn(sys.executable, "-m", "celery", "-A", "on_celery", *words)


if __name__ == "__main__":
    import on_celery  # as the worker knows it, not as __main__

    rig.main(on_celery.Celery)
