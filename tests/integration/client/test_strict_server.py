"""Many jobs at a real HTTP server that says wait, and that is away for a while.

`JOBPOOL_TEST_VENDOR=full` has 2,000 jobs and a minute without the server: 4 min.
"""

import os
import time

import pytest

from support.site.strict_server import (
    ANSWERED,
    BEGUN,
    DONE,
    ENDED,
    REFUSED,
    StrictServer,
)
from support.site.supervising import Site
from support.waiting import wait_until

IS_FULL = os.environ.get("JOBPOOL_TEST_VENDOR") == "full"
JOBS, OUTAGE_S, MOST, CLOSED_S = (
    (2000, 60.0, 60, 5.0) if IS_FULL else (200, 3.0, 60, 2.0)
)
PATIENCE_S = 600.0 if IS_FULL else 60.0
CAP = 4
HEARD_S = 1.0
"""So soon after a refusal nobody on the host asks any more."""
WORKS_S = 0.005
APP = f"""
import http.client, urllib.error, urllib.request

account = jobs.quota("account", concurrency=6)
vendor = jobs.quota("vendor", concurrency={CAP})


@jobs.job("io", kind="charge", quotas=[account], max_attempts=1)
def charge(url: str):
    with vendor.permit() as permit:
        asked = urllib.request.Request(f"{{url}}{{current().id}}", method="POST")
        try:
            with urllib.request.urlopen(asked, timeout=20) as answer:
                permit.answered(answer.status, answer.headers)
        except urllib.error.HTTPError as exc:
            permit.answered(exc.code, exc.headers)
            raise
        except (OSError, http.client.HTTPException) as exc:
            raise jobpool.Throttled(vendor, after="1s") from exc
"""


@pytest.mark.timeout(900)
def test_each_job_is_done_once_and_nobody_asks_while_told_to_wait(tmp_path):
    """Over two supervisors; each job has one attempt, which nothing of this spends."""
    with (
        StrictServer(tmp_path, most=MOST, closed_s=CLOSED_S, works_s=WORKS_S) as server,
        Site(tmp_path / "site", APP) as site,
    ):
        site.start("io=4")
        site.start("io=4")
        ids = site.add_many("charge", [{"url": server.url}] * JOBS, pool="io")
        server.wait_done(JOBS // 3)
        server.kill()
        back_s = time.monotonic() + OUTAGE_S
        wait_until(
            lambda: time.monotonic() >= back_s, OUTAGE_S + 10, "the outage's end"
        )
        server.start()
        jobs = site.finish_all(ids, PATIENCE_S)
        entries = server.entries()
    spent = {(job.state, job.failures, job.crashes, job.interruptions) for job in jobs}
    assert spent == {("succeeded", 0, 0, 0)}
    assert sorted(one.job for one in entries if one.what == DONE) == sorted(ids)
    assert asked_again(entries) == []
    assert most_at_once(entries, back_s - OUTAGE_S) == CAP
    assert asked_while_told_to_wait(entries) == []
    refusals = {one.until_s for one in entries if one.what == REFUSED}
    assert len(refusals) >= JOBS // MOST // 3  # It was asked too fast, again and again.


def asked_again(entries):
    """Return the jobs that somebody asked for although an answer was given."""
    answered, again = set(), []
    for one in entries:
        if one.what == ANSWERED:
            answered.add(one.job)
        elif one.what == BEGUN and one.job in answered:
            again.append(one.job)
    return again


def most_at_once(entries, killed_s):
    """Return how many requests were under way at the same time."""
    running, most = set(), 0
    for one in entries:
        if one.at_s > killed_s:
            killed_s = float("inf")
            running.clear()
        if one.what == BEGUN:
            running.add(one.job)
        elif one.what == ENDED:
            running.discard(one.job)
        most = max(most, len(running))
    return most


def asked_while_told_to_wait(entries):
    """Return requests that came later than everybody can have heard of a refusal."""
    first_s = {}
    for one in entries:
        if one.what == REFUSED:
            first_s.setdefault(one.until_s, one.at_s)
    return [
        (one.job, one.at_s - first, until - one.at_s)
        for one in entries
        if one.what in {BEGUN, REFUSED}
        for until, first in first_s.items()
        if first + HEARD_S < one.at_s < until
    ]
