"""Whether each settlement is right: I7, I8 and I18 of `invariants`, counted anew.

Nothing of jobpool's own accounting is used: the table says which outcomes an observed
end may be given, and the budgets are counted here a second time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from support.store.history import (
    Budgets,
    Ended,
    FinalJob,
    History,
    Operated,
    Settled,
    Started,
)

FAILURES = frozenset(("failed", "timed_out", "stalled", "out_of_memory", "crashed"))
CRASHES = frozenset(("crashed", "out_of_memory"))
UNKNOWN = CRASHES | {"timed_out", "stalled", "interrupted", "lost"}
_BY_SUPERVISOR = frozenset(("timed_out", "stalled", "canceled", "interrupted"))
ALLOWED: Mapping[str, frozenset[str]] = {
    "done_ok": frozenset(("succeeded", "lost")),
    "done_failed": frozenset(("failed", "lost")),
    "done_soft": frozenset(("timed_out", "lost")),
    "done_snoozed": frozenset(("lost",)),
    "itself": _BY_SUPERVISOR | {"crashed", "lost"},
    "supervisor": _BY_SUPERVISOR | {"lost"},
    "host memory": frozenset(("interrupted", "canceled", "lost")),
    # It may be charged for the one death that another has caused.
    "nemesis": _BY_SUPERVISOR | {"crashed", "lost"},
    "orphaned": frozenset(("lost",)),
    "fence": frozenset(("interrupted", "lost")),
    "host": frozenset(("lost",)),
}
"""Which outcomes an attempt may be given, by what ended it."""
GUILT: Mapping[str, str] = {"over_memory": "out_of_memory", "lied": "crashed"}
"""What else a supervisor may have killed it for."""


class Finding(NamedTuple):
    """A settlement that is wrong."""

    job: int
    text: str
    token: int = 0
    """0: it is about no single attempt."""


def unjust_verdicts(history: History) -> Iterator[Finding]:
    """Yield every settlement that differs from what its attempt did."""
    ends = {record.token: record for record in history.of(Ended)}
    began_s = {record.token: record.at_s for record in history.of(Started)}
    late = _past_their_limits(history, began_s)
    for settled in history.of(Settled):
        if settled.receipt == "accepted":
            token = settled.token
            if (token, settled.outcome) not in late:
                yield from _unjust(settled, ends.get(token), token in began_s)
    yield from _wrong_sums(history)


def _past_their_limits(
    history: History, began_s: Mapping[int, float]
) -> set[tuple[int, str]]:
    """Return the attempts that a fence ended past a limit of theirs, with its outcome.

    Their supervisor may have been stopped between its verdict and its kill.
    """
    kinds = {final.job: final.kind for final in history.jobs}
    late: set[tuple[int, str]] = set()
    for end in history.of(Ended):
        budget = history.budgets.get(kinds.get(end.job, ""))
        if end.cause != "fence" or budget is None:
            continue
        ran_s = end.at_s - began_s.get(end.token, end.at_s)
        limits_s = {
            "timed_out": budget.timeout_s,
            "stalled": budget.heartbeat_timeout_s,
        }
        late |= {(end.token, o) for o, s in limits_s.items() if s and ran_s >= s}
    return late


def _unjust(settled: Settled, end: Ended | None, begun: bool) -> Iterator[Finding]:
    job, token, outcome = settled.job, settled.token, settled.outcome
    if outcome is None:
        snoozed = end is not None and end.cause == "done_snoozed"
        if begun and not settled.presumed and not snoozed:
            text = f"{token} had begun, and was handed back uncounted"
            yield Finding(job, text, token)
        return
    if not begun:
        if not (outcome == "lost" and settled.presumed):
            yield Finding(job, f"{token} never began, and is {outcome}", token)
        return
    if settled.by_itself:
        return  # whatever it does afterwards
    if end is None:
        if not (outcome == "lost" and settled.presumed):
            yield Finding(job, f"{token} still runs, and is {outcome}", token)
        return
    allowed = ALLOWED[end.cause] | {GUILT[g] for g in end.guilt if g in GUILT}
    if outcome not in allowed:
        yield Finding(job, f"{token} ended by {end.cause}, and is {outcome}", token)


class Spent:
    """What a job has spent since it was revived, by our own count."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.crashes_ms: list[int] = []
        self.gave_up = False
        """The attempt that is judged now did."""

    def add(self, record: Settled, *, gave_up: bool) -> None:
        """Count the end of one more attempt."""
        self.outcomes[record.outcome or ""] += 1
        self.gave_up = gave_up
        if record.outcome in CRASHES:
            self.crashes_ms.append(record.store_ms)


def _wrong_sums(history: History) -> Iterator[Finding]:
    """Yield jobs whose state or counters do not follow from their settlements."""
    finals = {final.job: final for final in history.jobs}
    spent: defaultdict[int, Spent] = defaultdict(Spent)
    gave_up = {record.token for record in history.of(Ended) if record.gave_up}
    spared = {r.token for r in history.of(Ended) if r.cause == "host memory"}
    tried: Counter[int] = Counter()
    for record in history.records:
        if type(record) is Operated and record.what == "revive":
            spent[record.job] = Spent()
        elif type(record) is Settled and record.receipt == "accepted":
            final = finals.get(record.job)
            if final is None or record.outcome is None:
                continue
            tried[record.job] += record.outcome != "succeeded"
            if record.token in spared and record.outcome == "interrupted":
                # It costs nothing, for a day.
                if record.state != ("canceled" if record.canceled else "pending"):
                    text = f"{record.token} was spared, and it is {record.state}"
                    yield Finding(record.job, text, record.token)
                continue
            spent[record.job].add(record, gave_up=record.token in gave_up)
            budget = history.budgets.get(final.kind)
            if budget is not None:
                yield from _misjudged(record, final, budget, spent[record.job])
    for final in history.jobs:
        yield from _miscounted(final, spent[final.job].outcomes, tried[final.job])


def _misjudged(
    record: Settled, final: FinalJob, budget: Budgets, spent: Spent
) -> Iterator[Finding]:
    wanted = _wanted_state(record, final, budget, spent)
    if record.canceled and wanted == "pending":
        wanted = "canceled"
    if record.state != wanted:
        how = f"{record.outcome} after {dict(spent.outcomes)}"
        text = f"{how}: became {record.state}, expected {wanted}"
        yield Finding(record.job, text)


def _wanted_state(  # noqa: PLR0911 - one line per promise, in their order
    record: Settled, final: FinalJob, budget: Budgets, spent: Spent
) -> str:
    outcome = record.outcome or ""
    if outcome in {"succeeded", "canceled"}:
        return outcome
    if budget.never_again and outcome in UNKNOWN:
        return "dead"
    if spent.gave_up and outcome == "failed":
        return "dead"
    if outcome in CRASHES:
        since_ms = record.store_ms - budget.crash_window_s * 1000
        if sum(ms >= since_ms for ms in spent.crashes_ms) >= budget.max_crashes:
            return "quarantined"
    if outcome == "lost":
        # A loss costs a recovery, an interruption or nothing: `core.rules.suspects`.
        spent_most = spent.outcomes["lost"] + spent.outcomes["interrupted"]
        may_end = min(budget.max_lost, budget.max_interruptions) <= spent_most
        return "quarantined" if may_end and record.state == "quarantined" else "pending"
    if outcome == "interrupted":
        most, sure = budget.max_interruptions, spent.outcomes["interrupted"]
        may_end = sure + spent.outcomes["lost"] >= most and record.state == "dead"
        return "dead" if may_end or sure >= most else "pending"
    failures = sum(spent.outcomes[name] for name in FAILURES)
    most = final.max_attempts or budget.max_attempts
    return "dead" if failures >= most else "pending"


def _miscounted(final: FinalJob, count: Counter[str], tried: int) -> Iterator[Finding]:
    """I18: the row says what the history says."""
    sums = {
        "failures": sum(count[name] for name in FAILURES),
        "crashes": sum(count[name] for name in CRASHES),
    }
    losses = final.recoveries + final.interruptions - count["interrupted"]
    if not 0 <= losses <= count["lost"]:
        text = f"its row counts {losses} losses, {count['lost']} were settled"
        yield Finding(final.job, text)
    for name, wanted in sums.items():
        if (seen := getattr(final, name)) != wanted:
            text = f"its row counts {seen} {name}, {wanted} were settled"
            yield Finding(final.job, text)
    if len(final.attempts) != tried:
        text = f"{len(final.attempts)} attempts stored, {tried} settled"
        yield Finding(final.job, text)
