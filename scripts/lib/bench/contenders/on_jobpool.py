"""jobpool: application, producer and starter; the store is SQLite or PostgreSQL."""

from __future__ import annotations

import sys
from itertools import repeat

import rig

from jobpool import JobPool

jobs = JobPool()  # JOBPOOL_STORE names the store
DECLARED = {
    kind: jobs.job(
        "cpu",
        kind=kind,
        timeout=f"{rig.HANG_LIMIT_S}s" if kind == "hang" else "1m",
        memory=f"{rig.MEMORY_LIMIT_MIB}MiB",
        max_attempts=1,
    )(handler)
    for kind, handler in rig.HANDLERS.items()
}


class Jobpool(rig.Contender):
    """The defaults, except for what a scenario asks."""

    def put(self, kind: str, argument: str) -> None:
        """Enqueue a job."""
        DECLARED[kind].enqueue(argument)

    def put_many(self, kind: str, argument: str, count: int) -> None:
        """Enqueue by streaming."""
        jobs.enqueue_many(DECLARED[kind], repeat({"argument": argument}, count))

    def work(self) -> None:
        """Start a supervisor."""
        lines = ["[pools.cpu]", f"size = {self.workers}"]
        lines += ["recycle = 1"] if self.fresh else []
        lines += ["breaker_after = 0"]
        (rig.directory() / "jobpool.toml").write_text("\n".join(lines) + "\n")
        app = str(rig.HERE / "on_jobpool.py")
        words = [
            sys.executable,
            "-m",
            "jobpool",
            "run",
            "--app",
            app,
            "--log-level",
            "error",
        ]
        self.spawn(*words)


if __name__ == "__main__":
    rig.main(Jobpool)
