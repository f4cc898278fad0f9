"""How each system is started and given its jobs, for `compare-isolation`.

Run as a program in a system's own environment: ``isolation/systems.py SYSTEM CASE``
enqueues one hostile job and the canaries, and runs until it is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from isolation.cases import LIMIT_S, MEMORY_MIB, canary, hostile

HERE = Path(__file__).parent
CANARIES = 10
SLOTS = 2


def run_executor(case: str) -> None:
    """The standard library's pool: it has no limits."""
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - as all here

    pool = ProcessPoolExecutor(SLOTS)
    pool.submit(hostile, case)
    for number in range(CANARIES):
        pool.submit(canary, number)


def run_pebble(case: str) -> None:
    """Pebble: a time limit for each call."""
    import pebble  # noqa: PLC0415

    pool = pebble.ProcessPool(max_workers=SLOTS)
    pool.schedule(hostile, args=[case], timeout=LIMIT_S)
    for number in range(CANARIES):
        pool.schedule(canary, args=[number], timeout=LIMIT_S)


def run_rq(case: str) -> None:
    """RQ: two workers, a time limit for each job."""
    import redis  # noqa: PLC0415
    import rq  # noqa: PLC0415

    url = _redis()
    queue = rq.Queue(connection=redis.Redis.from_url(url))
    queue.enqueue(hostile, case, job_timeout=LIMIT_S)
    for number in range(CANARIES):
        queue.enqueue(canary, number, job_timeout=LIMIT_S)
    for _ in range(SLOTS):
        subprocess.Popen([f"{sys.prefix}/bin/rq", "worker", "--url", url], cwd=HERE)


def run_celery(case: str) -> None:
    """Celery: prefork; late acknowledgement, so that a death loses nothing."""
    import celery  # noqa: PLC0415

    app = celery.Celery("compare", broker=_redis())
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_time_limit=LIMIT_S,
        worker_max_memory_per_child=MEMORY_MIB * 1024,
        worker_prefetch_multiplier=1,
    )
    hostile_task, canary_task = app.task(hostile), app.task(canary)
    hostile_task.delay(case)
    for number in range(CANARIES):
        canary_task.delay(number)
    app.worker_main(["worker", f"--concurrency={SLOTS}", "--loglevel=WARNING"])


def run_jobpool(case: str) -> None:
    """jobpool, with its default budgets of attempts and crashes, and no backoff."""
    os.chdir(os.environ["COMPARE_DIR"])
    (Path.cwd() / "jobs.py").write_text(_APP)
    sys.path.insert(0, str(Path.cwd()))
    import jobs  # noqa: PLC0415

    jobs.hostile_job.enqueue(case)
    for number in range(CANARIES):
        jobs.canary_job.enqueue(number)
    jobs.jobs.close()
    words = ["-m", "jobpool", "--pools", f"cpu={SLOTS}", "--log-level", "error"]
    os.execv(sys.executable, [sys.executable, *words])


_APP = f"""
from jobpool import JobPool
from isolation.cases import canary, hostile

jobs = JobPool()
LIMITS = {{"timeout": {LIMIT_S}, "memory": "{MEMORY_MIB}MiB"}}
RETRY = dict.fromkeys(
    ("crashed", "out_of_memory", "timed_out", "Exception", "KeyboardInterrupt"),
    ["100ms"],
)
hostile_job = jobs.job("cpu", kind="hostile", retry=RETRY, **LIMITS)(hostile)
canary_job = jobs.job("cpu", kind="canary", **LIMITS)(canary)
"""


def _redis() -> str:
    """Start a Redis of our own; return its URL."""
    path = f"{os.environ['COMPARE_DIR']}/redis"
    words = ["redis-server", "--port", "0", "--unixsocket", path, "--save", ""]
    subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=os.environ["COMPARE_DIR"])
    until_s = time.monotonic() + 20
    while not Path(path).exists() and time.monotonic() < until_s:
        time.sleep(0.02)
    is_celery = "celery" in sys.argv
    return f"{'redis+socket' if is_celery else 'unix'}://{path}"


RUN = {
    "jobpool": run_jobpool,
    "celery": run_celery,
    "rq": run_rq,
    "pebble": run_pebble,
    "executor": run_executor,
}


if __name__ == "__main__":
    RUN[sys.argv[1]](sys.argv[2])
    while True:  # until it is ended
        time.sleep(60)
