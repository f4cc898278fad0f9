"""One claimer of a store: leases and settles as a supervisor's store thread does.

Reads requests, one JSON object a line, and answers each with one line. It runs with the
`jobpool` on its PYTHONPATH, which may be an older one: what that does not know is left
out of what is asked of it.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobpool.core.jobs.job import Evidence, JobState, Lease, NewJob, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.opening import open_store
from jobpool.store.records.runs import KindRecord, Run

POOL = "cpu"
TTL_S = 3600.0
BULK = 1000


class Claimer:
    """A run of its own in a store."""

    def __init__(self, wish: Mapping[str, Any]) -> None:
        self.run = wish["run"]
        self.store = open_store(wish["url"], **_limited(wish))
        self.ends: list[Settlement] = []
        self.quotas: dict[str, Any] = {}
        kinds = tuple(wish["kinds"])
        more: dict[str, Any] = {}
        if wish.get("quotas"):
            from jobpool.core.rules.quotas.definition import (  # noqa: PLC0415 - newer
                Limits,
                Quota,
            )
            from jobpool.core.rules.quotas.rate import parse_rate  # noqa: PLC0415

            for name, said in wish["quotas"].items():
                numbers = dict(said)
                if "rate" in numbers:
                    numbers["rate"] = parse_rate(numbers["rate"])
                self.quotas[name] = Quota(name=name, **numbers)
            more["limits"] = Limits(quotas=tuple(self.quotas.values()))
        self.fair: str = wish.get("fair", "")
        if self.fair:
            from jobpool.core.rules.quotas.definition import (  # noqa: PLC0415 - newer
                Limits,
            )
            from jobpool.core.rules.quotas.shares import PoolRule  # noqa: PLC0415

            rule = PoolRule(name=POOL, fair=self.fair)
            more["limits"] = Limits(pools=(rule,))
        run = Run(
            id=self.run,
            host="bench",
            boot_id="bench",
            pid=os.getpid(),
            pid_namespace=1,
            version="0",
            **more,
        )
        self.needs: Mapping[str, list[str]] = wish.get("needs", {})
        self.store.begin_run(run, [self._record(kind) for kind in kinds], TTL_S)

    def _record(self, kind: str) -> KindRecord:
        more: dict[str, Any] = {}
        if names := self.needs.get(kind):
            from jobpool.core.rules.quotas.definition import Need  # noqa: PLC0415

            more["needs"] = tuple(Need(name) for name in names)
        return KindRecord(
            kind=kind,
            pool=POOL,
            schema=b"{}",
            timeout_s=60.0,
            memory_bytes=2**30,
            max_attempts=1,
            max_crashes=1,
            **more,
        )

    def fill(
        self,
        kind: str,
        count: int,
        values: int = 0,
        tenant: str | None = None,
        tenants: int = 0,
    ) -> None:
        """Enqueue jobs, over so many values of what their quota counts by.

        And of one tenant, or over so many.
        """
        whose = [f"t{n}" for n in range(tenants)] or [tenant]
        jobs = [self._job(kind, values, n, whose[n % len(whose)]) for n in range(count)]
        for begin in range(0, count, BULK):
            self.store.enqueue(jobs[begin : begin + BULK])

    def producing(self, kind: str, seconds: float, tenant: str | None = None) -> float:
        """Enqueue jobs one by one; return how many a second."""
        job, done, began_s = self._job(kind, 0, 0, tenant), 0, time.perf_counter()
        while (spent_s := time.perf_counter() - began_s) < seconds:
            self.store.enqueue([job])
            done += 1
        return done / spent_s

    def refusal_ms(self, kind: str, times: int) -> float:
        """Return the median time of an enqueue that is refused."""
        from jobpool.errors import QueueFull  # noqa: PLC0415 - as below

        job, took_ms = self._job(kind, 0, 0), []
        for _ in range(times):
            began_s = time.perf_counter()
            try:
                self.store.enqueue([job])
            except QueueFull:
                took_ms.append(1000 * (time.perf_counter() - began_s))
            else:
                sys.exit("bench: a job was accepted, not refused")
        return statistics.median(took_ms)

    def _job(self, kind: str, values: int, n: int, tenant: str | None = None) -> NewJob:
        more: dict[str, Any] = {} if tenant is None else {"tenant": tenant}
        if self.fair:
            from jobpool.core.rules.quotas.lanes import lane_id  # noqa: PLC0415

            more["lane"] = lane_id(POOL, kind, 0, tenant, {})
        if self.needs.get(kind):
            from jobpool.core.rules.quotas.lanes import lane_id  # noqa: PLC0415

            found = {"v": str(n % values)} if values else {}
            more["quota_values"] = found or None
            more["lane"] = lane_id(POOL, kind, 0, None, found)
        return NewJob(kind=kind, pool=POOL, payload=b"{}", **more)

    def cycle(self, kinds: Sequence[str], batch: int, seconds: float) -> float:
        """Settle and lease in turn, one transaction each; return jobs a second."""
        done, began_s = 0, time.perf_counter()
        while (spent_s := time.perf_counter() - began_s) < seconds:
            # None for this one: others hold the lane at this moment.
            done += len(self._turn(kinds, batch))
        self.settle()
        return done / spent_s

    def _turn(self, kinds: Sequence[str], batch: int) -> Sequence[Lease]:
        with self.store.transaction():
            if self.ends:
                self.store.settle(self.ends)
            found = self.store.lease(self.run, {POOL: batch}, {POOL: kinds}).leases
        self.ends = [_succeeded(lease) for lease in found]
        return found

    def settle(self) -> None:
        """Settle what is leased."""
        if self.ends:
            self.store.settle(self.ends)
            self.ends = []

    def claim_ms(self, kinds: Sequence[str], batch: int, times: int) -> float:
        """Return the median time of a claim that finds a whole batch."""
        took_ms = []
        for _ in range(times):
            began_s = time.perf_counter()
            found = self.store.lease(self.run, {POOL: batch}, {POOL: kinds}).leases
            took_ms.append(1000 * (time.perf_counter() - began_s))
            if len(found) != batch:
                sys.exit(f"bench: {len(found)} jobs were leased, not {batch}")
            self.store.settle([_succeeded(lease) for lease in found])
        return statistics.median(took_ms[len(took_ms) // 5 :])

    def block(self, kinds: Sequence[str]) -> int:
        """Lease, and settle, until nothing may be leased any more."""
        done, empty = 0, 0
        while empty < 3:  # noqa: PLR2004 - a claim looks at some lanes only
            found = self.store.lease(self.run, {POOL: 500}, {POOL: kinds}).leases
            self.store.settle([_succeeded(lease) for lease in found])
            done += len(found)
            empty = 0 if found else empty + 1
        return done

    def warm(self, kinds: Sequence[str], batch: int, claims: int) -> None:
        """Claim and settle, so that all that has come is known."""
        for _ in range(claims):
            self._turn(kinds, batch)
        self.settle()

    def hold(self, kinds: Sequence[str], count: int) -> int:
        """Lease so many, and keep them."""
        return len(self.store.lease(self.run, {POOL: count}, {POOL: kinds}).leases)

    def store_s(self, kind: str, count: int) -> float:
        """Return how long a bulk enqueue takes, as a stream of bulks."""
        jobs = [self._job(kind, 0, n) for n in range(count)]
        began_s = time.perf_counter()
        for begin in range(0, count, BULK):
            self.store.enqueue(jobs[begin : begin + BULK])
        return time.perf_counter() - began_s

    def flow_s(
        self, kind: str, count: int, steps: int = 1, *, external: bool = False
    ) -> float:
        """Return how long it takes to store a flow.

        Args:
            kind: of its members.
            count: members, in equal shares of the steps; one more waits for them all.
            steps: how many can begin at once.
            external: one more waits for somebody's word, and the last for it too.
        """
        from jobpool.core.jobs.flow import (  # noqa: PLC0415 - newer
            NewFlow,
            NewStep,
            When,
        )

        first = [NewStep(number=n, name=kind) for n in range(steps)]
        members = [(n % steps, self._job(kind, 0, n)) for n in range(count)]
        if external:
            first.append(NewStep(number=steps, name="approval", external=True))
            members.append((steps, self._job("external.approval", 0, 0)))
        before = tuple((step.number, When.SUCCEEDED) for step in first)
        last = NewStep(number=len(first), name="last", after=before)
        members.append((last.number, self._job(kind, 0, 0)))
        flow = NewFlow(name="bench", steps=(*first, last))
        began_s = time.perf_counter()
        self.store.enqueue_flow(flow, members)
        return time.perf_counter() - began_s

    def drain(self, kinds: Sequence[str], batch: int, count: int) -> dict[str, float]:
        """Lease and settle so many jobs; return the seconds that each took."""
        took_s = dict.fromkeys(("lease", "settle"), 0.0)
        left = count
        while left > 0:
            began_s = time.perf_counter()
            found = self.store.lease(self.run, {POOL: batch}, {POOL: kinds}).leases
            leased_s = time.perf_counter()
            ends = [_succeeded(lease) for lease in found]
            if not ends:
                sys.exit(f"bench: no job was leased, and {left} were left")
            before_s = time.perf_counter()
            self.store.settle(ends)
            took_s["settle"] += time.perf_counter() - before_s
            took_s["lease"] += leased_s - began_s
            left -= len(ends)
        return took_s

    def close(self) -> None:
        """End the run."""
        self.store.end_run(self.run)
        self.store.close()


def _limited(wish: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits on what waits, if any are wished for."""
    if not wish.get("limits"):
        return {}
    from jobpool.core.rules.admission import Admission, Bound  # noqa: PLC0415 - newer

    bounds = {
        section: {name: Bound(**numbers) for name, numbers in of.items()}
        for section, of in wish["limits"].items()
    }
    return {"admission": Admission(**bounds)}


def _succeeded(lease: Lease) -> Settlement:
    return Settlement(
        id=lease.id,
        token=lease.token,
        state=JobState.SUCCEEDED,
        outcome=Outcome.SUCCEEDED,
        result=b"null",
        evidence=Evidence(
            peak_rss_bytes=30_000_000, cpu_s=0.001, duration_s=0.001, slot="cpu-1"
        ),
    )


def main() -> None:
    """Answer until there are no more requests."""
    claimer: Claimer | None = None
    for line in sys.stdin:
        wish = json.loads(line)
        method = wish.pop("do")
        answer: object = None
        if method == "open":
            claimer = Claimer(wish)
        else:
            call: Callable[..., object] = getattr(claimer, method)
            answer = call(**wish)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
