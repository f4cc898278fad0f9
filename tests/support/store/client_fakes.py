"""A store in memory, for tests of the client alone."""

from contextlib import contextmanager

from jobpool import JobPool
from jobpool.core.jobs.flow import EnqueuedFlow, FlowState
from jobpool.core.jobs.job import Enqueued, Job, JobState
from jobpool.errors import KeyConflict

PLAIN = {
    "priority": 0,
    "key": None,
    "unique": None,
    "tenant": None,
    "attempt": 0,
    "max_attempts": None,
    "failures": 0,
    "crashes": 0,
    "interruptions": 0,
    "recoveries": 0,
    "timeout_s": None,
    "memory_bytes": None,
    "outcome": None,
    "reason": None,
    "error_class": None,
    "error": None,
    "result": None,
    "progress": None,
    "checkpoint": None,
    "created_at_ms": 0,
    "run_at_ms": 0,
    "expires_at_ms": None,
    "started_at_ms": None,
    "finished_at_ms": None,
    "last_heartbeat_at_ms": None,
    "lease_until_ms": None,
    "cancel_requested": False,
    "supervisor": None,
    "slot": None,
    "duration_s": None,
    "cpu_s": None,
    "peak_rss_bytes": None,
}


class FakeStore:
    """Holds jobs in a list; each call of `enqueue` is one batch."""

    url = "sqlite:////tmp/fake.db"

    def __init__(self):
        self.jobs = []
        self.batches = []
        self.stored = {}
        self.wakes = 0
        self.closed = False
        self.error = None
        self.get_calls = 0
        self.audited = []

    @contextmanager
    def transaction(self):
        yield

    def audit(self, entry, audit_id=None):
        self.audited.append(entry)
        return len(self.audited)

    def enqueue(self, jobs, connection=None, *, wakes=False):
        if self.error:
            raise self.error
        self.wakes += wakes
        self.batches.append((len(jobs), connection))
        return [self._add(job) for job in jobs]

    def payload(self, job_id, connection=None):
        return self.jobs[job_id - 1].payload

    def _add(self, job):
        for job_id, other in enumerate(self.jobs, 1):
            if job.key is not None and (job.kind, job.key) == (other.kind, other.key):
                if job.payload != other.payload:
                    raise KeyConflict("taken", job_id)
                return Enqueued(job_id, created=False, state=JobState.RUNNABLE)
        self.jobs.append(job)
        job_id = len(self.jobs)
        self.put(job_id, JobState.RUNNABLE, kind=job.kind, pool=job.pool)
        return Enqueued(job_id, created=True, state=JobState.RUNNABLE)

    def put(self, job_id, state, **fields):
        """Set what `get` returns for a job."""
        named = {"kind": "k", "pool": "cpu"}
        old = self.stored.get(job_id)
        if old is not None:
            named = {"kind": old.kind, "pool": old.pool}
        self.stored[job_id] = Job(id=job_id, state=state, **(PLAIN | named | fields))

    def flow_of(self, _job_id):
        """No job is of a flow."""

    def get(self, job_id, connection=None):
        self.get_calls += 1
        return self.stored.get(job_id)

    def find(self, which, limit):
        found = sorted(set(which.ids) & set(self.stored), reverse=True)
        return [self.stored[job_id] for job_id in found[:limit]]

    def cancel(self, ids):
        return self._move(ids, (JobState.RUNNABLE,), JobState.CANCELED)

    def revive(self, ids, states, memory_bytes=None):
        return self._move(ids, states, JobState.RUNNABLE)

    def _move(self, ids, states, to):
        found = [i for i in ids if i in self.stored and self.stored[i].state in states]
        for job_id in found:
            self.put(job_id, to)
        return len(found)

    def wake(self):
        self.wakes += 1

    def close(self):
        self.closed = True

    @contextmanager
    def caller_transaction(self, connection):
        yield


class FlowStore(FakeStore):
    """Holds flows with their members in a list, and shows one flow as it was put."""

    def __init__(self):
        super().__init__()
        self.made = []
        self.detail = None
        self.results = []
        self.result_calls = []

    def enqueue_flow(self, flow, members, connection=None, *, wakes=False):
        self.made.append((flow, list(members), connection))
        self.wakes += wakes
        return EnqueuedFlow(7, created=True, state=FlowState.OPEN, ref="flow-7-x")

    def flow(self, flow_id):
        self.get_calls += 1
        is_it = self.detail is not None and self.detail.row.id == flow_id
        return self.detail if is_it else None

    def flows(self, which, limit):
        found = [self.flow(flow_id) for flow_id in which.ids]
        return [detail.row for detail in found if detail is not None][:limit]

    def flow_id_of(self, ref):
        return 7 if ref == "flow-7-x" else None

    def step_results(self, flow_id, numbers, after_id, limit):
        self.result_calls.append((flow_id, numbers, after_id, limit))
        return [
            row
            for row in self.results
            if row.job_id > after_id and (numbers is None or row.number in numbers)
        ][:2]


class InTransaction:
    """A caller's connection, within its transaction."""

    in_transaction = True


def pool_with(store, **kwargs):
    """Return a JobPool whose store is *store*, open already."""
    jobs = JobPool(**kwargs)
    jobs._gateway._lazy._store = store
    return jobs


def adder(jobs):
    """Register a handler that adds."""

    @jobs.job("cpu", kind="add", aliases=["plus"])
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    return add
