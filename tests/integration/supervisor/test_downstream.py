"""A service that fails for a while: breakers and retry budgets, with real parts.

`JOBPOOL_TEST_VENDOR=full` has 10,000 failed jobs: 4 min.
"""

import itertools
import os
import time
from datetime import datetime

import pytest

from support.site.downstream import APP, PROBE_S, Downstream
from support.site.supervising import PATIENCE_S, Site
from support.waiting import Running, wait_until

IS_FULL = os.environ.get("JOBPOOL_TEST_VENDOR") == "full"
PAUSE_S = 3.0
BEGUN_S = 2.0
"""So soon all that was leased before a breaker opened has made its request, on a
machine that runs."""
MOST_FAIL = 20
"""Requests that the breaker wants to see before it opens."""
RATIO, FLOOR_A_MINUTE = 0.05, 60
STORM, PATIENT_S, WATCHED_S = (10_000, 600.0, 120.0) if IS_FULL else (300, 60.0, 5.0)
"""Failed jobs; and for how long retries are watched after the recovery. The budget is
large for a minute, while it counts the failed first attempts, and then the floor."""
STORM_APP = APP.replace("{budget!r}", repr({"ratio": RATIO, "floor": "1/s"}))


def test_a_service_that_fails_is_asked_by_one_probe_at_a_time_until_it_is_back(
    tmp_path,
):
    """Over two supervisors, for jobs that hold the quota and those that ask for it."""
    with (
        Site(tmp_path, STORM_APP) as site,
        Downstream() as service,
        Running() as running,
    ):
        ahead_s = time.time() - time.monotonic()
        both = [site.start("io=4"), site.start("io=4")]
        starts, _ = (
            site.add_many(
                kind,
                [{"url": service.url, "number": n} for n in range(first, 60, 2)],
                pool="io",
            )
            for first, kind in enumerate(("starts", "asks"))
        )
        opened_s = wait_event(both, "downstream_opened")

        def is_probe(one):
            ran_s = running.ran_s(opened_s - ahead_s, one.at_s - ahead_s)
            return one.at_s > opened_s and ran_s > BEGUN_S

        service.wait(is_probe, 1)
        service.is_up = True
        jobs = site.finish_all(starts, PATIENCE_S)
        assert wait_event(both, "downstream_closed") > opened_s
    assert {job.state for job in jobs} == {"succeeded"}
    bad = [one for one in service.ledger if not one.good]
    assert len(bad) >= MOST_FAIL
    # Others come before the closing is logged; but none before the probe is answered.
    answered_s = next(one.at_s for one in service.ledger if one.good) + PROBE_S
    probes = [one for one in service.ledger if is_probe(one) and one.at_s < answered_s]
    # There are more bad ones if this process saw the first of them late.
    assert [one.good for one in probes] == [False] * (len(probes) - 1) + [True]
    assert len(probes) > 1
    for one, other in itertools.pairwise(probes):
        assert other.at_s - one.at_s > 2 * PAUSE_S


def wait_event(supervisors, name):
    """Wait until one of them reports an event, and return the time of the first."""
    events = wait_until(
        lambda: [event for one in supervisors for event in one.events(name)],
        PATIENCE_S,
        name,
    )
    return min(datetime.fromisoformat(one["time"]).timestamp() for one in events)


@pytest.mark.timeout(900)
def test_a_service_that_is_back_sees_no_more_retries_than_their_budget(tmp_path):
    """And first attempts begin as ever, before those that wait."""
    with Site(tmp_path, STORM_APP) as site, Downstream() as service:
        for _ in range(2):
            site.start("io=8")
        add = {"url": service.url}
        site.add_many("storms", [{**add, "number": n} for n in range(STORM)], pool="io")
        wait_until(
            lambda: sum(one.attempt == 1 for one in service.ledger) == STORM,
            PATIENT_S,
            "the failures",
        )
        service.is_up, back_s = True, time.time()
        news = site.add_many(
            "storms", [{**add, "number": STORM + n} for n in range(200)], pool="io"
        )
        site.finish_all(news, PATIENCE_S)
        done = sum(one.attempt > 1 and one.good for one in service.ledger)
        assert done < STORM / 2  # the others wait for the budget
        service.wait(
            lambda one: one.attempt > 1 and one.at_s > back_s + WATCHED_S,
            1,
            patience_s=WATCHED_S + PATIENCE_S,
        )
        firsts = [site.job(job) for job in news]
    assert {(job.state, job.failures) for job in firsts} == {("succeeded", 0)}
    assert service.retries_over(RATIO, FLOOR_A_MINUTE, slack_s=1.0) == []
