"""Processes that step at the same time: each tick gets one job, and nobody fails."""

import collections
import multiprocessing
import random
import traceback

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import FINISHED
from jobpool.core.rules.schedules.policy import Overlap
from jobpool.core.rules.schedules.rule import Rule
from jobpool.store.opening import open_store
from jobpool.store.operations.schedules.ticking import LOOK_EVERY_S
from jobpool.store.records.operating import Filter, Replay
from support.store.scheduling import declared
from support.store.storing import (
    ManualClock,
    begin_run,
    ended,
    lease,
    new_job,
    succeeded,
)

ENGINES = ["sqlite", "postgres"]
FORK = multiprocessing.get_context("fork")
SCHEDULES, MIXED = 60, 12
DEADLINE_S = 60


def at_once(url, *acts):
    """Let each act run in a process of its own, all from the same moment on.

    Returns:
        What they returned, or the traceback of one that failed.
    """
    ready, answers = FORK.Barrier(len(acts)), FORK.SimpleQueue()

    def be(act):
        clock = ManualClock()
        store = open_store(url, clock=clock)
        ready.wait(DEADLINE_S)
        try:
            answers.put(act(store, clock))
        except BaseException:  # noqa: BLE001 - it is for the parent
            answers.put(traceback.format_exc())
        store.close()

    processes = [FORK.Process(target=be, args=(act,)) for act in acts]
    for process in processes:
        process.start()
    told = [answers.get() for _ in acts]
    for process in processes:
        process.join(DEADLINE_S)
    return told


def step_through(store, clock):
    """Make steps until nothing is due."""
    clock.advance(60)
    enqueued = 0
    while True:
        stepped = store.tick(7)
        enqueued += stepped.enqueued
        if stepped.next_due_in_s > LOOK_EVERY_S:
            return enqueued


def test_two_processes_enqueue_each_tick_once(new_store_url):
    """Between them all that is due, whoever is first at which."""
    url = new_store_url()
    store = open_store(url, clock=ManualClock())
    for number in range(SCHEDULES):
        store.put_schedule(declared(f"s{number}"))
    store.tick()
    store.close()
    told = at_once(url, step_through, step_through)
    assert sum(told) == SCHEDULES, told
    store = open_store(url)
    assert store.count(Filter()) == SCHEDULES
    ticks = [store.ticks(f"s{number}") for number in range(SCHEDULES)]
    assert {len(one) for one in ticks} == {1}
    assert len({tick.job_id for (tick,) in ticks}) == SCHEDULES
    store.close()


def step_on(store, clock):
    """Step as time passes."""
    for _ in range(25):
        clock.advance(0.5)
        store.tick(5)
    return 0


def work_on(store, clock):
    """Lease, settle, revive, prune, pause and enqueue meanwhile."""
    dice = random.Random(7)
    run_id = begin_run(store, f"run-{dice.random()}")
    for _ in range(25):
        clock.advance(0.8)
        store.enqueue([new_job()])
        granted = lease(store, run_id, 3)
        ends = [succeeded, ended, lambda one: ended(one, give_up=True)]
        store.settle([dice.choice(ends)(one) for one in granted])
        jobs = [job.id for job in store.find(Filter(states=FINISHED), 9)]
        store.revive(jobs[:3], FINISHED)
        store.cancel(jobs[3:4])
        store.replay([Replay(job_id=one, new=new_job()) for one in jobs[4:6]])
        store.prune(Retention(succeeded_count=5, canceled_count=5), 5)
        name = f"s{dice.randrange(MIXED)}"
        store.pause_schedule(name)
        store.resume_schedule(name, catch_up=True)
        store.run_now(name)
    return 0


def test_steps_meet_everything_else_without_harm(new_store_url):
    """No deadlock, no error, and no nominal time twice, under every policy."""
    url = new_store_url()
    store = open_store(url, clock=ManualClock())
    for number in range(MIXED):
        overlap = list(Overlap)[number % len(Overlap)]
        rule = Rule(every_ms=1000)
        store.put_schedule(declared(f"s{number}", rule, overlap=overlap))
    store.close()
    assert at_once(url, step_on, step_on, work_on) == [0, 0, 0]
    store = open_store(url)
    for number in range(MIXED):
        ticks = store.ticks(f"s{number}", 10_000)
        seen = collections.Counter(tick.job_id for tick in ticks if tick.job_id)
        assert ticks
        assert set(seen.values()) <= {1}
    store.close()
