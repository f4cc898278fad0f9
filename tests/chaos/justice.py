"""What only chaos can see: actions against verdicts, results, and surviving processes.

`invariants` checks the contract on the joined history. Here each rule checks the
witnesses themselves. Every finding is an `invariants.Violation`.
"""

import json
from collections import Counter
from itertools import pairwise

from chaos.accounts import ATTEMPTS_MAX, CRASHES_MAX, POISON
from chaos.flow_accounts import RULES as FLOW_RULES
from chaos.nemesis import AT_STORE
from chaos.quotas import caps_hold, rates_hold
from jobpool.core.jobs.flow import EXTERNAL
from support.store.invariants import Violation, violations

SURVIVAL_MS = 1500
"""A process may be seen so long after its attempt was settled, on a busy machine."""
LATE_MS = 5
TICK_MS = 1000


def findings(accounts):
    """Return every broken promise."""
    found = violations(accounts.history())
    for rule in (
        _marks_are_granted,
        _results_are_own,
        _ends_are_deserved,
        _poison_is_found,
        _nothing_outlives_its_end,
        _supervisors_end_when_asked,
        _canceled_stays_canceled,
        _ticks_come_once,
        caps_hold,
        rates_hold,
        *FLOW_RULES,
    ):
        found += rule(accounts)
    return list(_once_each(found))


def _once_each(found):
    """Yield one violation per rule and attempt, however many checks found it."""
    grouped = {}
    for number, violation in enumerate(found):
        which = violation.token or -number
        grouped.setdefault((violation.rule, violation.job, which), []).append(violation)
    for same in grouped.values():
        yield same[0]._replace(text="; ".join(violation.text for violation in same))


def _marks_are_granted(accounts):
    """I2, I4: what ran was leased, once, and only while the lease held."""
    for token, one in accounts.attempts.items():
        lease = accounts.leases.get(one.token)
        if lease is None or lease.job != one.job or token != one.token:
            text = f"token {one.token} ran, and was not granted to it"
            yield Violation("I4", one.job, text, one.token)
            continue
        if one.starts != 1:
            text = f"token {one.token} began {one.starts} times"
            yield Violation("I4", one.job, text, token)
        if one.attempt != lease.attempt:
            text = f"token {one.token} ran as attempt {one.attempt} of {lease.attempt}"
            yield Violation("I4", one.job, text, token)
        late_ms = one.began_ns // 1_000_000 - lease.until_ms
        if late_ms > LATE_MS:
            text = f"token {one.token} began {late_ms} ms after its lease had ended"
            yield Violation("I5", one.job, text)


def _results_are_own(accounts):
    """I5: a success is that of the lease in force, and its handler came to its end."""
    last = {}
    for lease in accounts.leases.values():
        if lease.outcome == "succeeded":
            last[lease.job] = lease
    for job in accounts.jobs:
        if job.state != "succeeded" or job.kind.startswith(EXTERNAL):
            continue
        lease = last.get(job.job)
        token = json.loads(job.result or b"null")
        if lease is None or token != lease.token:
            held = lease and lease.token
            text = f"its result is of token {token}, and {held} held the lease"
            yield Violation("I5", job.job, text)
            continue
        one = accounts.attempts.get(lease.token)
        if one is None or one.action != "stop":
            yield Violation("I5", job.job, "it succeeded, and no handler had ended")
        elif one.action_ns // 1_000_000 > lease.until_ms + LATE_MS:
            yield Violation("I5", job.job, "it succeeded before its handler ended")


def _ends_are_deserved(accounts):
    """I7: no attempt is charged for what neither it nor the nemesis caused."""
    kinds = {job.job: job.kind for job in accounts.jobs}
    for lease in accounts.leases.values():
        one = accounts.attempts.get(lease.token)
        action = one.action if one else ""
        kind = kinds.get(lease.job)
        match lease.outcome:
            case "crashed" if action != "die" and lease.blow is None:
                why = "nobody killed its child"
            case "timed_out" if kind != "hang" and lease.blow is None:
                why = "it did not hang"
            case "out_of_memory" if kind != "hog":
                why = "it took no memory"
            case "failed" if action != "raise" and not accounts.may_burst(lease):
                why = "it raised nothing, or what its supervisor was there to prevent"
            case "stalled":
                why = "it need not give signs of life"
            case "canceled" if not lease.was_canceled:
                why = "nobody asked for that"
            case "interrupted" if not accounts.may_be_interrupted(lease):
                why = "nothing interrupted it"
            case "lost" if not _may_be_lost(accounts, lease):
                why = "its supervisor lived"
            case _:
                continue
        text = f"token {lease.token} of kind {kind} ({lease.slot}, run {lease.run})"
        text += f" is {lease.outcome}, and {why}"
        yield Violation("I7", lease.job, text, lease.token)


def _may_be_lost(accounts, lease):
    died_ms = accounts.died_ms.get(lease.run)
    is_dead = died_ms is not None and died_ms <= lease.until_ms
    return is_dead or accounts.may_lapse(lease)


def _poison_is_found(accounts):
    """I8: a job that always crashes ends in quarantine; no other job does.

    A hog that hits its backstop while its supervisor is stopped has failed, not
    crashed. After enough such failures it has no attempts left in which it could crash.
    """
    bursts = Counter(
        lease.job
        for lease in accounts.leases.values()
        if lease.outcome == "failed" and accounts.may_burst(lease)
    )
    for job in accounts.jobs:
        right = {"quarantined", "canceled"}
        if bursts[job.job] > ATTEMPTS_MAX - CRASHES_MAX:
            right.add("dead")
        if job.kind in POISON and job.state not in right:
            yield Violation("I8", job.job, f"poison, and it ended {job.state}")


def _nothing_outlives_its_end(accounts):
    """I12: no process of an attempt is seen long after that was settled."""
    for lease in accounts.leases.values():
        one = accounts.attempts.get(lease.token)
        if one is None:
            continue
        over_ms = one.last_ns // 1_000_000 - lease.until_ms
        # Nobody could end it while this machine stood still.
        over_ms -= (
            sum(
                max(
                    0, min(until_ns, one.last_ns) - max(from_ns, lease.until_ms * 10**6)
                )
                for from_ns, until_ns in accounts.pauses
            )
            // 1_000_000
        )
        if over_ms > SURVIVAL_MS:
            text = f"a process of token {lease.token} lived {over_ms} ms after its end"
            yield Violation("I12", lease.job, text)


def _supervisors_end_when_asked(accounts):
    """I19: a supervisor ends by itself only if it was harmed while it started."""
    busy = {lease.run for lease in accounts.leases.values()}
    for life in accounts.lives:
        if life.how in {"killed", "drained"}:
            continue
        harmed = any(
            blow.from_ns <= life.ended_ns
            and blow.until_ns >= life.began_ns
            and (
                blow.sort in AT_STORE
                or blow.sort.startswith(("zygote", "desc", "pids"))
            )
            for blow in accounts.blows
        )
        if life.run in busy or not harmed:
            text = f"{life.name} (run {life.run}) ended by itself with {life.how}"
            text += f": {life.last_words}"
            yield Violation("I19", 0, text)


def _canceled_stays_canceled(accounts):
    """I15: nothing is leased after its producer has learned that it is canceled."""
    canceled_ms = {
        call.job: call.at_ns // 1_000_000
        for call in accounts.calls
        if call.answer == "canceled"
    }
    for lease in accounts.leases.values():
        if lease.from_ms > canceled_ms.get(lease.job, lease.from_ms) + LATE_MS:
            text = f"token {lease.token} was granted after its cancellation"
            yield Violation("I15", lease.job, text)


def _ticks_come_once(accounts):
    """I16: from the first tick to the last none is missing, and each has a job."""
    for one, other in pairwise(accounts.ticks):
        apart_ms = other.nominal_ms - one.nominal_ms
        if apart_ms != TICK_MS:
            text = f"the tick after {one.nominal_ms} came {apart_ms} ms later"
            yield Violation("I16", other.job or 0, text)
    jobs = Counter(tick.job for tick in accounts.ticks)
    for tick in accounts.ticks:
        if tick.job is None:
            yield Violation("I16", 0, f"the tick at {tick.nominal_ms} has no job")
        elif jobs[tick.job] > 1:
            yield Violation("I16", tick.job, f"it is of {jobs[tick.job]} ticks")
