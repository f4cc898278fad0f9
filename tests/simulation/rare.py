"""Rare events that a run over many seeds must have met, or it proves less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from support.machine.verdicts import UNKNOWN
from support.store.history import Ended, History, Operated, Settled

RARE = (
    "a child could not be set up",
    "a child did not die when killed",
    "a child did not retire",
    "a child hung in its start",
    "a completion stands whatever became of its attempt",
    "a completion was never committed",
    "a completion was superseded",
    "a fork was refused",
    "a hook's job was stored",
    "a job expired",
    "a job was never begun by a dead child",
    "a job was sent ahead",
    "a key or unique text was known",
    "a request was lost",
    "a result was large",
    "a result kept its pool waiting",
    "a zygote did not load",
    "a zygote hung in a fork",
    "a zygote was lost",
    "fate snooze",
    "an open transaction held a job",
    "an orphan was swept",
    "permits were asked for beside a commit",
    "killed between two steps",
    "stopped when granted",
    "stopped when settling",
    "a last word crossed with the kill",
    "a feature came into use",
    "a feature was held back",
    "a supervisor was too old",
    "a tick was buffered",
    "a tick was open",
    "a tick was skipped",
    "a job was canceled for a tick",
    "an older version had no say",
    "said supervisor_outdated",
    "said job_cleared",
    "said job_quarantined",
    "said job_suspected",
    "said lease_fenced",
    "said lease_regained",
    "said memory_awaited",
    "said pool_reloaded",
    "said pool_resized",
    "said run_reclaimed",
    "said stale_settlement",
    "survivors of a dead run were killed",
    "the answer to a commit was lost",
    "the store was cut off",
    "zygotes ended children at the fence",
    "an end was refused as stale",
    "a lease was taken over after its expiry",
    "a lease was handed back",
    "a bucket was blocked",
    "a permit was granted",
    "a permit was refused",
    "fate throttled",
    "fate complete_early",
    "a lost answer was looked into",
    "a lost attempt was proven",
    "a job paid for the death of its host",
    "a job was lost until it was quarantined",
    "a job was interrupted",
    "a canceled job had run",
    "a job was revived",
    "an attempt was stalled",
    "an attempt was timed out",
    "an attempt was out of memory",
    "a job that must not run again is dead",
    "a kernel without memory killed an innocent",
    "leases had lapsed",
    "a job was deleted",
    "a run that was gone for a day was ended",
    "crashes were too far apart to count together",
    "a member was dropped",
    "an attempt was interrupted for the host",
    "fate grow",
    "a flow was succeeded",
    "a flow was failed",
    "a flow was canceled",
    "a flow's key was known",
    "fault approve",
    "a flow was retried",
    "a job of a flow was retried",
    "a member was replaced",
)


def notable(history: History) -> Counter[str]:
    """Count the rare events in a history."""
    causes = {end.token: end.cause for end in history.of(Ended)}
    kinds = {final.job: final.kind for final in history.jobs}
    found: Counter[str] = Counter()
    for end in history.of(Settled):
        if end.receipt == "stale":
            found["an end was refused as stale"] += 1
        if end.receipt == "completed" and end.outcome not in {None, "failed"}:
            found["a completion stands whatever became of its attempt"] += 1
        if end.receipt == "accepted":
            found.update(_of_end(end, causes.get(end.token), kinds.get(end.job, "")))
    revived = sum(act.what == "revive" for act in history.of(Operated))
    return found + Counter(
        {
            "a job was revived": revived,
            "crashes were too far apart to count together": sum(
                final.crashes >= history.budgets[final.kind].max_crashes
                and final.state != "quarantined"
                for final in history.jobs
                if final.kind in history.budgets
            ),
        }
    )


def _of_end(end: Settled, cause: str | None, kind: str) -> Iterator[str]:
    if end.outcome is None:
        yield "a lease was handed back"
    elif end.outcome == "lost":
        yield from _of_loss(end)
    elif end.outcome == "interrupted":
        yield "a job was interrupted"
        if cause == "nemesis":
            yield "a kernel without memory killed an innocent"
    elif end.outcome == "canceled":
        yield "a canceled job had run"
    elif end.outcome in UNKNOWN:
        yield f"an attempt was {end.outcome.replace('_', ' ')}"
    if end.outcome in UNKNOWN and end.state == "dead" and kind.endswith(".once"):
        yield "a job that must not run again is dead"


def _of_loss(end: Settled) -> Iterator[str]:
    if end.presumed and end.holder_until_ms <= end.store_ms:
        yield "a lease was taken over after its expiry"
    if not end.presumed:
        yield "a lost attempt was proven"
    if end.costs == "a recovery":
        yield "a job paid for the death of its host"
    if end.state == "quarantined":
        yield "a job was lost until it was quarantined"
