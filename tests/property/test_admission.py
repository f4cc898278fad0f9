"""Limits on what waits, for arbitrary producers that take turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.jobs.job import NewJob
from jobpool.core.rules.admission import TRUST_SHARE, Admission, Bound, OnFull, Seen
from jobpool.errors import QueueFull
from jobpool.store.operations.producers.admission import Entrance
from jobpool.store.operations.producers.sight import Outlook

JOB = NewJob(kind="k", pool="io", payload=b"{}", tenant="acme")
START_MS = 1_800_000_000_000


class Queue:
    """What waits, how it is looked at, and the time that looking takes."""

    def __init__(self, took_s=0.0):
        self.waiting, self.s, self.looks = 0, 0.0, 0
        self.took_s = took_s

    def now_s(self):
        return self.s

    def now_ms(self):
        return START_MS + round(1000 * self.s)

    def look(self, _scope, _bound, most):
        self.looks += 1
        self.s += self.took_s
        return Seen(min(self.waiting, most), 0.0 if self.waiting else None)

    def outlook(self, _scope, _job):
        return Outlook(2.0)


def refusal(producer, jobs, queue):
    """Return how so many jobs were refused; None: they were not."""
    try:
        producer.admit([JOB] * jobs, queue)
    except QueueFull as full:
        return full
    return None


ACTS = st.tuples(
    st.sampled_from(["enqueue"] * 4 + ["begin", "pass"]),
    st.integers(0, 4),
    st.integers(1, 40),
)


@given(most=st.integers(0, 300), acts=st.lists(ACTS, max_size=150))
def test_a_limit_is_exceeded_by_a_sixteenth_for_each_other_producer_at_most(most, acts):
    """A refusal is never wrong: the jobs would not have fitted in."""
    queue = Queue()
    admission = Admission(kinds={"k": Bound(depth_max=most)})
    producers = [Entrance(admission, queue.now_s) for _ in range(5)]
    used = set()
    for what, place, number in acts:
        if what == "begin":
            queue.waiting = max(0, queue.waiting - number)
        elif what == "pass":
            queue.s += number / 20
        else:
            used.add(place)
            full = refusal(producers[place], number, queue)
            if full is None:
                queue.waiting += number
            else:
                assert queue.waiting + number > most
                assert full.depth == queue.waiting
                assert 1 <= full.retry_after_s <= 3600
        others = max(0, len(used) - 1)
        assert queue.waiting <= most + others * most * TRUST_SHARE


@given(most=st.integers(0, 300), acts=st.lists(ACTS, max_size=150))
def test_a_lone_producer_never_exceeds_a_limit_however_slow_it_looks(most, acts):
    """What it believes meanwhile, it has counted."""
    queue = Queue(took_s=0.05)
    producer = Entrance(Admission(pools={"io": Bound(depth_max=most)}), queue.now_s)
    for what, _, number in acts:
        if what == "begin":
            queue.waiting = max(0, queue.waiting - number)
        elif what == "pass":
            queue.s += number / 20
        elif (full := refusal(producer, number, queue)) is None:
            queue.waiting += number
        else:
            assert full.depth + number > most
        assert queue.waiting <= most
    assert queue.looks * queue.took_s <= 0.1 * queue.s + queue.took_s


@given(
    most=st.integers(0, 50),
    batches=st.lists(st.integers(1, 60), max_size=8),
    rate=st.sampled_from([None, 0.5, 20.0]),
)
def test_what_is_stored_for_later_is_spread_and_the_rest_is_due_at_once(
    most, batches, rate
):
    """As many are due at once as fit in; nobody is refused, and none waits for long."""
    queue = Queue()
    queue.outlook = lambda _scope, _job: Outlook(rate)
    limits = {"acme": Bound(depth_max=most)}
    admission = Admission(on_full=OnFull.LATER, tenants=limits)
    producer = Entrance(admission, queue.now_s)
    delays = []
    for size in batches:
        room = max(0, most - queue.waiting)
        placed = producer.admit([JOB] * size, queue)
        assert [job.delay_ms > 0 for job in placed] == [n >= room for n in range(size)]
        queue.waiting += min(size, room)
        delays += [job.delay_ms for job in placed if job.delay_ms]
    assert all(1000 <= delay_ms <= 4_500_000 for delay_ms in delays)
    if rate:
        for place, delay_ms in enumerate(delays):
            assert delay_ms >= 1000 * min(3600, place / rate)


def test_in_an_empty_queue_a_look_serves_for_many_jobs():
    """And for a second; the nearer the limit, the more often it is looked."""
    queue = Queue()
    limit = Admission(kinds={"k": Bound(depth_max=1600)})
    producer = Entrance(limit, queue.now_s)
    for _ in range(1600):
        producer.admit([JOB], queue)
        queue.waiting += 1
    assert queue.looks < 130
    queue.waiting, queue.s, queue.looks = 0, 1.0, 0
    for _ in range(8):
        producer.admit([JOB], queue)
        queue.s += 0.3
    assert queue.looks == 2


def test_the_oldest_job_is_looked_for_before_it_can_be_too_old():
    """However much room there is, and only then."""
    queue, age_s = Queue(), [9.5]
    queue.look = lambda *_: Seen(1, age_s[0] + queue.s)
    producer = Entrance(Admission(age_max_s=10.0), queue.now_s)
    producer.admit([JOB], queue)
    age_s[0] = 1000.0
    queue.s = 0.49
    producer.admit([JOB], queue)
    queue.s = 0.5
    with pytest.raises(QueueFull) as caught:
        producer.admit([JOB], queue)
    assert (caught.value.what, caught.value.age_max_s) == ("the queue", 10.0)
