"""The contract: what must hold in every run, whatever went wrong in it.

Theory of operation. Each invariant is a function of a `History`; it knows nothing of
how jobpool works, only what it promises, and counts everything itself. A layer that
cannot see what an invariant is about gives records without it, and nothing is said.
`CHECKED_BY` says which layer sees what.

    I1  no loss        I2  no invention   I3  one end        I4  tokens
    I5  fencing        I6  overlap        I7  innocence      I8  poison bound
    I9  liveness       I10 timeout        I11 memory         I12 no litter
    I13 isolation      I14 bounded data   I15 cancel         I16 cron
    I17 parity         I18 truth          I19 restart-safe  I20 caps
    I21 rates          I22 throttles      I23 no idleness    I24 permits return
    I25 shares         I26 aging         I27 retry budgets
    I28 flows
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from support.machine.deaths import long_killers, unjust_losses
from support.machine.verdicts import unjust_verdicts
from support.store.deletions import wrong_deletions
from support.store.flow_history import wrong_flows
from support.store.history import (
    Approved,
    Called,
    Deleted,
    Disturbed,
    Dropped,
    Ended,
    Expired,
    Gone,
    Granted,
    History,
    Operated,
    RunBegan,
    RunEnded,
    Settled,
    Started,
)
from support.store.permits import wrong_permits
from support.store.shares import wrong_shares

TERMINAL = frozenset(("succeeded", "dead", "quarantined", "canceled"))
UNBOUNDED = frozenset(("done_snoozed", "host memory"))
"""Ends that no budget of the job bounds."""
OVERSHOOT_S = 1.0
"""A time limit may be passed by so much."""
CHECKED_BY: Mapping[str, tuple[str, ...]] = {
    "I1": ("simulation", "chaos", "crash points"),
    "I2": ("simulation", "chaos", "crash points"),
    "I3": ("simulation", "chaos", "crash points"),
    "I4": ("simulation", "chaos", "crash points"),
    "I5": ("simulation", "chaos"),
    "I6": ("simulation", "chaos"),
    "I7": ("simulation", "chaos"),
    "I8": ("simulation", "chaos"),
    "I9": ("simulation", "chaos"),
    "I10": ("simulation", "chaos"),
    "I11": ("simulation", "chaos"),
    "I12": ("simulation", "chaos"),
    "I13": ("benchmarks",),
    "I14": ("store conformance", "simulation"),
    "I15": ("simulation", "chaos"),
    "I16": ("simulation", "chaos", "store conformance"),
    "I17": ("store conformance", "property"),
    "I18": ("simulation", "chaos", "crash points"),
    "I19": ("simulation", "chaos", "crash points"),
    "I20": ("simulation", "chaos", "store conformance"),
    "I21": ("simulation", "chaos", "store conformance"),
    "I22": ("simulation", "store conformance"),
    "I23": ("simulation",),
    "I24": ("simulation", "chaos", "store conformance"),
    "I25": ("simulation", "store conformance"),
    "I26": ("simulation", "store conformance"),
    "I27": ("simulation", "store conformance"),
    "I28": ("simulation", "chaos", "property", "store conformance"),
}


class Violation(NamedTuple):
    """A broken promise."""

    rule: str
    job: int
    """0: it is about no single one."""
    text: str
    token: int = 0
    """0: it is about no single attempt."""


def violations(history: History) -> list[Violation]:
    """Return every broken promise, by rule."""
    return [found for check in RULES for found in check(history)]


def no_loss(history: History) -> Iterator[Violation]:
    """I1: what was acknowledged is there."""
    there = {final.job for final in history.jobs}
    for call in history.of(Called):
        if call.answer == "stored" and call.job not in there:
            yield Violation("I1", call.job, f"{call.call} was stored and is gone")


def no_invention(history: History) -> Iterator[Violation]:
    """I2: each job stems from one call; an unknown answer makes at most one."""
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for call in history.of(Called):
        answers[call.call].add(call.answer)
    deleted = {record.job for record in history.of(Deleted)}
    made = Counter(final.call for final in history.jobs if final.job not in deleted)
    for final in history.jobs:
        if final.call not in answers:
            yield Violation("I2", final.job, f"nobody has asked for {final.call!r}")
        elif answers[final.call] == {"refused"}:
            yield Violation("I2", final.job, f"{final.call} was refused, and is there")
        elif made[final.call] > 1:
            text = f"{final.call} made {made[final.call]} jobs"
            yield Violation("I2", final.job, text)


def one_end(history: History) -> Iterator[Violation]:
    """I3: a job ends once, until an operator revives it."""
    ended: dict[int, str] = {}
    for record in history.records:
        after = _state_after(record)
        if after is None:
            continue
        job, state = after
        is_revival = type(record) is Operated and record.what == "revive"
        is_second_thought = type(record) is Operated and record.before == "quarantined"
        if job in ended and not is_revival and not is_second_thought:
            yield Violation("I3", job, f"it was {ended[job]}, and then became {state}")
        ended.pop(job, None)
        if state in TERMINAL:
            ended[job] = state
    for final in history.jobs:
        state = ended.get(final.job)
        if state is not None and state != final.state:
            yield Violation("I3", final.job, f"it ended {state} and is {final.state}")


def _state_after(record: object) -> tuple[int, str] | None:
    if type(record) is Settled:
        return (record.job, record.state) if record.receipt == "accepted" else None
    if type(record) is Granted:
        return record.job, "leased"
    if type(record) is Operated:
        return record.job, record.after
    if type(record) is Expired or type(record) is Dropped:
        return record.job, "canceled"
    if type(record) is Approved:
        return record.job, "succeeded"
    return None


def tokens(history: History) -> Iterator[Violation]:
    """I4: tokens grow and never repeat; attempts count up, except after returns."""
    seen: set[int] = set()
    newest: dict[int, Granted] = {}
    returned: set[int] = set()
    for record in history.records:
        if type(record) is Settled and record.receipt == "accepted":
            if record.outcome is None:
                returned.add(record.token)
        elif type(record) is Granted:
            job, before = record.job, newest.get(record.job)
            if record.token in seen:
                yield Violation("I4", job, f"token {record.token} was given twice")
            seen.add(record.token)
            if before is not None:
                step = 0 if before.token in returned else 1
                if record.token <= before.token:
                    yield Violation("I4", job, f"token {record.token} is not newer")
                if record.attempt != before.attempt + step:
                    yield Violation(
                        "I4",
                        job,
                        f"attempt {record.attempt} follows {before.attempt}",
                    )
            newest[job] = record


def deletions(history: History) -> Iterator[Violation]:
    """I1, I2, I14: what is over is deleted in its time, and nothing else is."""
    for rule, job, text in wrong_deletions(history):
        yield Violation(rule, job, text)


def fencing(history: History) -> Iterator[Violation]:
    """I5: a lease ends once, by its own token; anything else changes nothing."""
    current: dict[int, int] = {}
    completed: set[int] = set()
    stale = 0
    for record in history.records:
        if type(record) is Granted:
            if record.job in current:
                yield Violation(
                    "I5", record.job, f"leased again while {current[record.job]} holds"
                )
            current[record.job] = record.token
        elif type(record) is Settled:
            holds = current.get(record.job) == record.token
            stale += record.receipt == "stale"
            if record.receipt == "accepted":
                current.pop(record.job, None)
                if record.by_itself:
                    completed.add(record.token)
            if wrong := _misanswered(record, holds=holds, completed=completed):
                yield Violation("I5", record.job, wrong)
    if history.stale is not None and history.stale != stale:
        yield Violation("I5", 0, f"{stale} stale ends, {history.stale} counted")


def _misanswered(record: Settled, *, holds: bool, completed: set[int]) -> str:
    """Say what is wrong with the answer to the end of a lease, if anything is."""
    token, receipt = record.token, record.receipt
    if receipt == "accepted":
        return "" if holds else f"{token} was superseded, and counted"
    if record.changed:
        return f"a {receipt} end changed the job"
    if receipt == "completed" and token not in completed:
        return f"{token} has completed it, says the store; nobody did"
    if holds and receipt in {"stale", "superseded"}:
        return f"{token} held, was refused"
    return ""


def overlap(history: History) -> Iterator[Violation]:
    """I6: no two attempts of a job at once, on several hosts only after expiry."""
    living: defaultdict[int, dict[int, Started]] = defaultdict(dict)
    left: defaultdict[int, set[int]] = defaultdict(set)
    hosts = {record.run: record.host for record in history.of(RunBegan)}
    dead: set[str] = set()
    afar: set[int] = set()  # tokens that another host took from dead runs
    for record in history.records:
        if type(record) is Started:
            for other in living[record.job].values():
                yield from _overlapping(history, record, other, afar)
            living[record.job][record.token] = record
        elif type(record) is RunEnded:
            dead.add(record.run)
        elif type(record) is Settled and record.presumed and record.holder in dead:
            at_home = {"", hosts.get(record.holder)}
            if record.receipt == "accepted" and hosts.get(record.by, "") not in at_home:
                afar.add(record.token)
        elif type(record) is Ended and "left" in record.guilt:
            left[record.job].add(record.token)
        elif type(record) is Ended or type(record) is Gone:
            living[record.job].pop(record.token, None)
    yield from _takeovers(history)
    if history.ordered:
        yield from _too_early(history)


def _overlapping(
    history: History, new: Started, old: Started, afar: set[int]
) -> Iterator[Violation]:
    """What another host has taken may come back: its first host was not asked."""
    if history.excused and (new.host != old.host or old.token in afar):
        return
    text = f"{new.token} on {new.host} begins while {old.token} on {old.host} lives"
    yield Violation("I6", new.job, text)


def _takeovers(history: History) -> Iterator[Violation]:
    """Others may end a run's lease once it is dead, or its time is over."""
    dead: set[str] = set()
    for record in history.records:
        if type(record) is RunEnded:
            dead.add(record.run)
        elif (
            type(record) is Settled
            and record.receipt == "accepted"
            and record.by != record.holder
            and record.holder not in dead
        ):
            over = record.holder_until_ms <= record.store_ms
            if not history.shared or not over:
                text = f"{record.token} was taken from {record.holder}, which lives"
                yield Violation("I6", record.job, text)


def _too_early(history: History) -> Iterator[Violation]:
    """No lease ends while anything of its attempt lives; none begins once it ended."""
    running: set[int] = set()
    left: set[int] = set()
    over: set[int] = set()
    for record in history.records:
        if type(record) is Started:
            running.add(record.token)
            if record.token in over and not history.excused:
                text = f"{record.token} begins, and its lease is over"
                yield Violation("I6", record.job, text)
        elif type(record) is Ended:
            running.discard(record.token)
            if "left" in record.guilt:
                left.add(record.token)
        elif type(record) is Gone:
            left.discard(record.token)
        elif type(record) is Settled and record.receipt == "accepted":
            over.add(record.token)
            excused = record.presumed or record.by_itself
            if record.token in running | left and not excused:
                text = f"{record.token} was settled, and something of it lives"
                yield Violation("I6", record.job, text)


def innocence(history: History) -> Iterator[Violation]:
    """I7: every outcome is what its own attempt did; crashes are its own deaths."""
    for found in unjust_verdicts(history):
        yield Violation("I7", *found)
    for job, text in unjust_losses(history):
        yield Violation("I7", job, text)


def poison_bound(history: History) -> Iterator[Violation]:
    """I8: no job begins more often than its budgets allow; none once it is over."""
    kinds = {final.job: final for final in history.jobs}
    starts: Counter[int] = Counter()
    for record in history.records:
        if type(record) is Operated and record.what == "revive":
            starts[record.job] = 0
        elif type(record) is Settled and record.receipt == "accepted":
            if record.costs == "nothing":
                yield Violation("I8", record.job, f"nobody paid for {record.token}")
        elif type(record) is Ended and record.cause in UNBOUNDED:
            starts[record.job] -= 1  # those are bounded by themselves
        elif type(record) is Started:
            starts[record.job] += 1
            final = kinds.get(record.job)
            if final is None or final.kind not in history.budgets:
                continue
            budget = history.budgets[final.kind]
            most = (
                (final.max_attempts or budget.max_attempts)
                + budget.max_lost
                + budget.max_interruptions
            )
            if starts[record.job] > most:
                yield Violation("I8", record.job, f"began {starts[record.job]} times")
    for job, text in long_killers(history):
        yield Violation("I8", job, text)


def liveness(history: History) -> Iterator[Violation]:
    """I9: with the faults off, everything ends."""
    if not history.quiet:
        return
    for final in history.jobs:
        if final.state not in TERMINAL:
            yield Violation("I9", final.job, f"it is still {final.state}")


def timeouts(history: History) -> Iterator[Violation]:
    """I10: no attempt of a living, undisturbed supervisor passes its time limit."""
    kinds = {final.job: final.kind for final in history.jobs}
    disturbed = history.of(Disturbed)
    began: dict[int, Started] = {}
    gone = {record.run: record.at_s for record in history.of(RunEnded)}
    for record in history.records:
        if type(record) is Started:
            began[record.token] = record
        elif type(record) is Ended and record.token in began:
            start = began[record.token]
            budget = history.budgets.get(kinds.get(record.job, ""))
            if budget is None or budget.timeout_s is None:
                continue
            end_s = min(record.at_s, gone.get(start.run, record.at_s))
            excused = any(
                d.where in {start.run, start.host}
                and d.at_s <= end_s
                and d.until_s >= start.at_s
                for d in disturbed
            )
            ran_s = end_s - start.at_s
            if ran_s > budget.timeout_s + OVERSHOOT_S and not excused:
                yield Violation("I10", record.job, f"ran for {ran_s:.1f} s")


def no_litter(history: History) -> Iterator[Violation]:
    """I12: after the end nothing is left; I19: and nothing broke on the way."""
    for text in history.litter:
        yield Violation("I12", 0, text)
    for text in history.broken:
        yield Violation("I19", 0, text)


def ticks(history: History) -> Iterator[Violation]:
    """I16: each tick comes once and in time, and its schedule's policy is kept."""
    for text in history.wrong_ticks:
        yield Violation("I16", 0, text)


def cancel(history: History) -> Iterator[Violation]:
    """I15: nothing that was granted after a confirmed cancel begins."""
    canceled: set[int] = set()
    for record in history.records:
        if type(record) is Operated:
            if record.what == "cancel":
                canceled.add(record.job)
            else:
                canceled.discard(record.job)
        elif type(record) is Granted and record.job in canceled:
            yield Violation("I15", record.job, "leased after it was canceled")
    for final in history.jobs:
        if history.quiet and final.job in canceled and final.state not in TERMINAL:
            yield Violation("I15", final.job, f"canceled, and still {final.state}")


def quotas(history: History) -> Iterator[Violation]:
    """I20 to I24, and I27: caps, rates, throttles and budgets hold, nothing idles."""
    for found in wrong_permits(history):
        yield Violation(*found)


def shares(history: History) -> Iterator[Violation]:
    """I25 and I26: nobody gets more than a share, and what is new overtakes nothing."""
    for found in wrong_shares(history):
        yield Violation(*found)


def flows(history: History) -> Iterator[Violation]:
    """I28: no member begins early, none that is to begin does not, every flow ends."""
    for job, text in wrong_flows(history):
        yield Violation("I28", job, text)


RULES: tuple[Callable[[History], Iterator[Violation]], ...] = (
    no_loss,
    no_invention,
    deletions,
    one_end,
    tokens,
    fencing,
    overlap,
    innocence,
    poison_bound,
    liveness,
    timeouts,
    no_litter,
    ticks,
    cancel,
    quotas,
    shares,
    flows,
)
