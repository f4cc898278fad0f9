"""How long recovery from a blow took, separated by what else was struck meanwhile.

Theory of operation. A recovery is a span of time: from a child's death until its slot
begins the next job, or from a supervisor's start until its first lease. If another
blow, or its consequences, falls into that span, the span measures that blow as well. It
is counted under that blow, not among the undisturbed ones. The same goes for a span in
which no job waited for the slot, by the database's own account of what was runnable. No
span is left out.
"""

import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

CALM = "in calm weather"
ALONE = "in the storm, nothing else struck"
IDLE = "no job waited all the time"
NEVER = "none: the run ended first"


class Fault(NamedTuple):
    """What a blow may delay besides what it strikes."""

    under: str
    """What spans are counted under that meet it."""
    after_s: float = 1.0
    """So long its consequences last when it is over."""
    is_everybodys: bool = False
    """It meets every run; else the one that it struck."""


_STORE = Fault("the store was away", 3.0, is_everybodys=True)
_SERVER = Fault("the server was down", 3.0, is_everybodys=True)
_CONNECTION = Fault("a connection was lost", 3.0, is_everybodys=True)
FAULTS = {
    "supervisor killed": Fault("the supervisor was killed"),
    "supervisor stopped": Fault("the supervisor was stopped"),
    "supervisor stopped beyond the TTL": Fault("the supervisor was stopped"),
    # Another one must be started, and import the application.
    "zygote killed": Fault("a zygote was killed", 3.0),
    "zygote stopped": Fault("a zygote was stopped"),
    "outage": _STORE,
    "store locked": _STORE,
    "disk full": _STORE,
    "server restarted": _SERVER,
    "server killed": _SERVER,
    "connections cut": _CONNECTION,
    "connection cut at a random byte": _CONNECTION,
    "black hole": _CONNECTION,
    "pids exhausted": Fault("no pids", is_everybodys=True),
    "descriptors exhausted": Fault("no descriptors"),
    "clock shifted": Fault("the clock was shifted"),
}
"""By sort of blow; the first one that a span meets is what it is counted under."""
PROBATION = "jobs lost with a supervisor ran alone, or waited for it"
"""What is suspected of having killed it does, and nothing else begins on its host."""
SLOTS_OWN = frozenset(("child killed", "child stopped", "child stopped for good"))
STRUCK_AGAIN = "the new child was struck, too"


class Span(NamedTuple):
    """A recovery; without an end if there was none."""

    run: str
    slot: str | None
    from_ns: int
    until_ns: int | None
    leased_ms: int = 0
    """When the job was granted that ends it."""


class Waiting:
    """How many jobs of each pool were runnable at any time.

    Args:
        accounts: of the run; which kinds are of which pool is told by their leases.
    """

    def __init__(self, accounts):
        kinds = {job.job: job.kind for job in accounts.jobs}
        pools = {
            kinds.get(lease.job): lease.slot.partition("/")[0]
            for lease in accounts.leases.values()
            if lease.slot
        }
        self._at_ms = defaultdict(list)
        self._counts = defaultdict(list)
        for change in sorted(accounts.changes, key=lambda change: change.at_ms):
            step = (change.state == "runnable") - (change.old_state == "runnable")
            if step and (pool := pools.get(kinds.get(change.job))) is not None:
                for one in (pool, None):
                    counts = self._counts[one]
                    self._at_ms[one].append(change.at_ms)
                    counts.append((counts[-1] if counts else 0) + step)

    def lasted(self, pool, from_ms, until_ms):
        """Say whether a job was runnable all the time; pool None means any pool."""
        at_ms, counts = self._at_ms[pool], self._counts[pool]
        first = bisect_right(at_ms, from_ms) - 1
        # What the grant itself has taken did wait until then.
        last = bisect_left(at_ms, until_ms)
        return first >= 0 and all(counts[first:last])


def recoveries(accounts, calm):
    """Return for both sorts of recovery, and each fault, how long they took in ms.

    Args:
        accounts: of the run.
        calm: from when until when nothing but what is measured was struck, in seconds.
    """
    return {
        "ms from a child's death to its slot's next job": _sorted(
            accounts, _child_spans(accounts), calm
        ),
        "ms from a supervisor's start to its first lease": _sorted(
            accounts, _restart_spans(accounts), calm
        ),
    }


def _sorted(accounts, spans, calm):
    took_ms = defaultdict(list)
    waiting, probations = Waiting(accounts), list(probations_of(accounts))
    never = 0
    for span in spans:
        if span.until_ns is None:
            never += 1
            continue
        under = met(accounts.blows, probations, span)
        pool = span.slot.partition("/")[0] if span.slot else None
        from_ms = span.from_ns // 1_000_000
        if under is None and not waiting.lasted(pool, from_ms, span.leased_ms):
            under = IDLE
        if under is None:
            is_calm = calm[0] <= span.from_ns / 1e9 <= calm[1]
            under = CALM if is_calm else ALONE
        took_ms[under].append((span.until_ns - span.from_ns) / 1e6)
    faults = [fault.under for fault in FAULTS.values()]
    order = [CALM, ALONE, IDLE, STRUCK_AGAIN, PROBATION, *faults]
    found = {
        name: spread(took_ms[name]) for name in dict.fromkeys(order) if took_ms[name]
    }
    return found | ({NEVER: {"n": never}} if never else {})


def probations_of(accounts):
    """Yield the periods in which lost jobs may have been on probation.

    From the death that took them along until each has ended once more.
    """
    attempts = defaultdict(list)
    for lease in accounts.leases.values():
        attempts[lease.job].append(lease)
    for leases in attempts.values():
        for lost, again in pairwise(sorted(leases, key=lambda lease: lease.from_ms)):
            if lost.outcome == "lost":
                yield accounts.died_ms.get(lost.run, lost.until_ms), again.until_ms


def met(blows, probations, span):
    """Return what else was struck during a recovery; None: nothing."""
    if any(
        from_ms * 1_000_000 <= span.until_ns and until_ms * 1_000_000 >= span.from_ns
        for from_ms, until_ms in probations
    ):
        return PROBATION
    found = {
        blow.sort
        for blow in blows
        if (fault := FAULTS.get(blow.sort)) is not None
        and (fault.is_everybodys or blow.run == span.run)
        and blow.from_ns <= span.until_ns
        and blow.until_ns + fault.after_s * 1e9 >= span.from_ns
    }
    for sort, fault in FAULTS.items():
        if sort in found:
            return fault.under
    if any(
        blow.sort in SLOTS_OWN
        and span.slot is not None
        and (blow.run, blow.slot) == (span.run, span.slot)
        and span.from_ns < blow.until_ns <= span.until_ns
        for blow in blows
    ):
        return STRUCK_AGAIN
    return None


def _child_spans(accounts):
    begins = defaultdict(list)
    for one in accounts.attempts.values():
        lease = accounts.leases.get(one.token)
        if lease is not None and lease.slot:
            begin = one.began_ns, lease.from_ms
            begins[lease.run, lease.slot].append(begin)
    for times in begins.values():
        times.sort()
    for blow in accounts.blows:
        if blow.sort == "child killed":
            times = begins[blow.run, blow.slot]
            place = bisect_right(times, (blow.until_ns, 0))
            next_one = times[place] if place < len(times) else (None, 0)
            yield Span(blow.run, blow.slot, blow.until_ns, *next_one)


def _restart_spans(accounts):
    first = {}
    for lease in accounts.leases.values():
        first.setdefault(lease.run, lease.from_ms)
    for life in accounts.lives:
        if life.run is not None:
            leased_ms = first.get(life.run, 0)
            until_ns = leased_ms * 1_000_000 or None
            yield Span(life.run, None, life.began_ns, until_ns, leased_ms)


def spread(took_ms):
    """Return count, middle, 99th percentile and maximum."""
    if len(took_ms) < 2:
        return {"n": len(took_ms), "max": round(max(took_ms), 1)}
    ranks = statistics.quantiles(took_ms, n=100, method="inclusive")
    named = {"p50": ranks[49], "p99": ranks[98], "max": max(took_ms)}
    return {"n": len(took_ms)} | {name: round(ms, 1) for name, ms in named.items()}
