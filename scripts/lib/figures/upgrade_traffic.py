"""Claims, ends and new jobs at a steady pace, by whichever release is imported."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import closing

from jobpool.core.jobs.job import Evidence, JobState, NewJob, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.opening import open_store
from jobpool.store.records.runs import Run

RUN = "previous"
CLAIMED = 10
EVERY_S = 0.01


def main() -> None:
    """Work on the store of argv until stdin is closed; print moments and ms."""
    found: list[tuple[float, float]] = []
    ended = threading.Event()
    with closing(open_store(sys.argv[1])) as store:
        run = Run(
            id=RUN,
            host="figures",
            boot_id="figures",
            pid=os.getpid(),
            pid_namespace=1,
            version="0",
            pools={},
        )
        store.begin_run(run, (), 3600.0)
        job = NewJob(kind="noop", pool="cpu", payload=b"{}")
        threading.Thread(
            target=lambda: (sys.stdin.read(), ended.set()), daemon=True
        ).start()
        print("ready", flush=True)
        while not ended.wait(EVERY_S):
            store.enqueue([job] * CLAIMED)
            began = time.perf_counter()
            leases = store.lease(RUN, {"cpu": CLAIMED}, {"cpu": ["noop"]}).leases
            found.append((time.time(), 1000 * (time.perf_counter() - began)))
            store.settle(
                [
                    Settlement(
                        id=lease.id,
                        token=lease.token,
                        state=JobState.SUCCEEDED,
                        outcome=Outcome.SUCCEEDED,
                        result=b"null",
                        evidence=Evidence(),
                    )
                    for lease in leases
                ]
            )
    print(json.dumps(found))
