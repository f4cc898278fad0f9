"""The figures of a chaos run: one page for a person, one document for a machine."""

from bisect import bisect_right
from collections import Counter

from chaos.accounts import POISON

WINDOW_S = 2
GOOD = 0.9
OF_RULE = {
    "I1": "lost",
    "I2": "invented",
    "I3": "ended twice",
    "I4": "token reuse",
    "I5": "fence breaches",
    "I6": "overlaps on one host",
    "I7": "innocents penalised",
    "I8": "poison bound broken, or missed",
    "I9": "never ended",
    "I10": "time limit passed",
    "I12": "litter",
    "I15": "started after a cancel",
    "I16": "ticks missing or doubled",
    "I18": "counters that lie",
    "I19": "broken on the way",
    "I28": "members early, twice or never",
}


def jepsen(accounts):
    """Return the counts of the sets in Jepsen's total-queue check."""
    there = {job.job for job in accounts.jobs}
    stored = {c.name: c.job for c in accounts.calls if c.answer == "stored"}
    unknown = {c.name for c in accounts.calls if c.answer == "unknown"} - set(stored)
    made = {one.call: one.job for one in accounts.history().jobs}  # by the calls' names
    runs = Counter(one.job for one in accounts.attempts.values())
    return {
        "attempted": len({c.name for c in accounts.calls}),
        "acknowledged": len(stored),
        "ok": sum(job in there for job in stored.values()),
        "lost": sum(job not in there for job in stored.values()),
        "unexpected": len(set(made) - set(stored) - unknown),
        "recovered": len(set(made) & unknown),
        "executions": sum(runs.values()),
        "duplicated": sum(count > 1 for count in runs.values()),
    }


def trials(accounts):
    """Return the number of trials behind each zero."""
    deaths = Counter(blow.sort for blow in accounts.blows)
    honest = sum(job.kind not in POISON for job in accounts.jobs)
    settled = sum(lease.state != "" for lease in accounts.leases.values())
    begun = len(accounts.attempts)
    return {
        "I1": sum(call.answer == "stored" for call in accounts.calls),
        "I2": len(accounts.jobs),
        "I3": len(accounts.jobs),
        "I4": len(accounts.leases),
        "I5": settled,
        "I6": begun,
        "I7": settled,
        "I8": len(accounts.jobs) - honest,
        "I9": len(accounts.jobs),
        "I10": begun,
        "I12": deaths["supervisor killed"] + deaths["child killed"],
        "I15": sum(call.answer == "canceled" for call in accounts.calls),
        "I16": len(accounts.ticks),
        "I18": len(accounts.jobs),
        "I19": len(accounts.lives),
        "I28": sum(job.step is not None for job in accounts.jobs),
    }


def zeros(accounts, found):
    """Return each rule's violations, trials, and the 95 % bound of a zero."""
    bad = Counter(violation.rule for violation in found)
    false = sum(
        job.kind not in POISON and job.state == "quarantined" for job in accounts.jobs
    )
    tried = trials(accounts)
    rows = {
        what: (bad[rule], tried[rule], bound(bad[rule], tried[rule]))
        for rule, what in OF_RULE.items()
    }
    honest = sum(job.kind not in POISON for job in accounts.jobs)
    # The budgets are counted anew: a quarantine that they do not explain is an I7.
    wrong = sum("became quarantined" in violation.text for violation in found)
    rows["false quarantines"] = (wrong, honest, bound(wrong, honest))
    return rows, false


def bound(seen, tried):
    """Return the rule of three, 3/n: the upper bound at 95 % confidence."""
    return 3 / tried if tried and not seen else None


def goodput(accounts, calm, outage):
    """Return the rate before an outage, and after how long 90 % of it was back.

    Args:
        accounts: of the run.
        calm: from when until when it was measured, in seconds.
        outage: from when until when the store was away.
    """
    ends_s = sorted(
        lease.until_ms / 1e3
        for lease in accounts.leases.values()
        if lease.outcome == "succeeded"
    )

    def rate(from_s, until_s):
        count = bisect_right(ends_s, until_s) - bisect_right(ends_s, from_s)
        return count / (until_s - from_s)

    before = rate(*calm)
    at_s = outage[1]
    while ends_s and at_s < ends_s[-1]:
        if rate(at_s, at_s + WINDOW_S) >= GOOD * before:
            return before, at_s - outage[1]
        at_s += 0.1
    return before, None


def document(accounts, found, run):
    """Return everything that is reported, as plain values."""
    rows, quarantined = zeros(accounts, found)
    states = Counter(job.state for job in accounts.jobs)
    outcomes = Counter(str(one.outcome) for one in accounts.leases.values())
    return run | {
        "blows": dict(sorted(Counter(b.sort for b in accounts.blows).items())),
        "jobs": jepsen(accounts),
        "states": dict(states),
        "flows": dict(Counter(row.state for row in accounts.flows.rows)),
        "leases by outcome": dict(outcomes),
        "quarantined by deaths that the nemesis caused": quarantined,
        "zeros": {
            what: {"seen": seen, "trials": tried, "bound 95 %": limit}
            for what, (seen, tried, limit) in rows.items()
        },
        "violations": [violation._asdict() for violation in found],
    }


def page(values):
    """Return the document as one page of text."""
    lines = []
    for name, value in values.items():
        if name in {"zeros", "violations"}:
            continue
        if isinstance(value, dict) and any(isinstance(v, dict) for v in value.values()):
            lines.append(f"{name}:")
            lines += [f"  {key}: {_words(one)}" for key, one in value.items()]
        else:
            lines.append(f"{name}: {_words(value)}")
    lines.append(f"{'':<34}{'seen':>6}{'trials':>9}{'95 % bound':>12}")
    for what, row in values["zeros"].items():
        limit = row["bound 95 %"]
        shown = "" if limit is None else f"{limit:.1e}"
        lines.append(f"{what:<34}{row['seen']:>6}{row['trials']:>9}{shown:>12}")
    return "\n".join(lines)


def _words(value):
    if not isinstance(value, dict):
        return str(value or "none") if isinstance(value, list) else str(value)
    return ", ".join(f"{key} {one}" for key, one in value.items()) or "none"
