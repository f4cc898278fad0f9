"""Producers: they enqueue the load of a chaos run and record what was acknowledged."""

import time
from collections import Counter
from typing import NamedTuple

from chaos import flows
from chaos.flows import FlowProducer, Plan
from jobpool.errors import OutcomeUnknown, StoreError
from support.site.witnessing import Witness

OUTSTANDING_MAX = 48
"""So many jobs wait or run at most: more than there are slots, and a short drain."""
RETRY_S = 0.1
PAUSE_S = 0.005
SHARE_OF_KIND = {
    "steady": 27, "waiting": 26, "quick": 13, "once": 5, "flaky": 8, "family": 4,
    "capped": 5, "paced": 5,
    "segfault": 1, "leave": 1, "hang": 1, "hog": 0.5,
}  # fmt: skip
LASTS_MS = {5: 30, 30: 30, 100: 25, 400: 12, 1500: 3, 4000: 2}
KEYED = 0.3
REPEATED = 0.05
CANCELED = 0.05
TENANTS = (None, "ant", "bee", "cat")


class Call(NamedTuple):
    """A call to enqueue, or to cancel, has ended."""

    at_ns: int
    name: str
    answer: str
    """``stored``, ``refused``, ``unknown`` or ``canceled``."""
    job: int
    created: bool


class Producer(Witness):
    """Enqueues jobs of all kinds while few enough are outstanding.

    Args:
        name: tells its calls from another producer's.
        rng: decides everything.
        handlers: of the application, by kind.
        jobs: its JobPool.
        auditor: knows how many jobs are outstanding.
    """

    def __init__(self, name, rng, handlers, *, jobs, auditor):
        super().__init__(name)
        self._rng, self._handlers, self._jobs = rng, handlers, jobs
        self._auditor = auditor
        self._ahead = 0
        self._flows = FlowProducer(rng, handlers, jobs)
        self._plans: list[tuple[float, Plan]] = []
        self.calls: list[Call] = []
        self.troubles: Counter[str] = Counter()
        self._number = 0

    def work(self):
        while not self._ends.wait(PAUSE_S):
            if self._auditor.audited.is_set():
                self._auditor.audited.clear()
                self._ahead = 0
            if self._auditor.unfinished + self._ahead < OUTSTANDING_MAX:
                if self._rng.random() < flows.SHARE:
                    self._enqueue_flow()
                else:
                    self._ahead += 1
                    self._enqueue()
            self._act()
        while self._plans:
            self._act(is_last=True)
            time.sleep(PAUSE_S)

    @property
    def drawn(self):
        """All flows that it has tried to store."""
        return self._flows.drawn

    @property
    def acts(self):
        """What it has done to flows."""
        return self._flows.acts

    def _enqueue_flow(self):
        """Store a flow, again under its key, if it has one, until that is known."""
        self._number += 1
        drawn = flows.draw(self._rng, f"{self.name}-{self._number}", TENANTS)
        self._flows.drawn.append(drawn)
        self._ahead += sum(map(len, drawn.kinds))
        run = None
        while run is None:
            try:
                run = self._flows.build(drawn).enqueue()
            except OutcomeUnknown:
                answer = "unknown"
            except StoreError:
                answer = "refused"
            else:
                answer = "stored"
            for _, call in drawn.calls():
                self._note(call, answer)
            if drawn.declared.key is None or self._ends.is_set():
                break
            if run is None:
                self._ends.wait(RETRY_S)
        if run is not None:
            now_s = time.monotonic()
            plans = self._flows.plans(drawn, run)
            self._plans += ((now_s + plan.after_s, plan) for plan in plans)

    def _act(self, *, is_last=False):
        """Do to flows what is to be done by now; in the end only what has to be."""
        now_s = time.monotonic()
        plans, self._plans = self._plans, []
        for at_s, plan in plans:
            if is_last and not plan.is_due:
                continue
            if at_s > now_s and not is_last:
                self._plans.append((at_s, plan))
            elif plan.act():
                self._plans.append((now_s + RETRY_S, plan))

    def _enqueue(self):
        (kind,) = self._pick(SHARE_OF_KIND)
        (lasts_ms,) = self._pick(LASTS_MS)
        self._number += 1
        name = f"{self.name}-{self._number}"
        is_keyed = self._rng.random() < KEYED
        call = self._handlers[kind].options(
            key=name if is_keyed else None, tenant=self._rng.choice(TENANTS)
        )
        times = 1 + (is_keyed and self._rng.random() < REPEATED / KEYED)
        job = None
        while times:
            job = self._try(call, name, lasts_ms)
            if job is not None or not is_keyed or self._ends.is_set():
                times -= 1
            else:
                self._ends.wait(RETRY_S)
        if job is not None and self._rng.random() < CANCELED:
            time.sleep(self._rng.choice((0, 0.01, 0.05)))
            self._cancel(job, name)

    def _try(self, call, name, lasts_ms):
        """Call once; return the job that it made or found."""
        try:
            job = call.enqueue(name, lasts_ms)
        except OutcomeUnknown:
            self._note(name, "unknown")
        except StoreError:
            self._note(name, "refused")
        else:
            self._note(name, "stored", job.id, created=job.created)
            return job.id
        return None

    def _cancel(self, job, name):
        try:
            if self._jobs.cancel(job):
                self._note(name, "canceled", job)
        except StoreError as error:
            self.troubles[f"cancel: {type(error).__name__}"] += 1

    def _note(self, name, answer, job=0, *, created=False):
        self.calls.append(Call(time.time_ns(), name, answer, job, created))
        if answer in {"unknown", "refused"}:
            self.troubles[answer] += 1

    def _pick(self, shares):
        return self._rng.choices(list(shares), list(shares.values()))
