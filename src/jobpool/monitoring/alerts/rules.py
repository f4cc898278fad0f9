"""The rules: a look at the queue, and notes of looks before, make verdicts. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping

import msgspec

from jobpool.core.config.settings import AlertSettings
from jobpool.core.units import show_duration
from jobpool.monitoring.alerts.looking import LOST_WITHIN_S, Look, served
from jobpool.monitoring.alerts.notes import (
    DAY_S,
    DEPTH_EVERY_MS,
    DEPTH_OVER_MS,
    HOUR_S,
    RECENT_S,
    KindNotes,
    Notes,
    busiest,
)
from jobpool.monitoring.alerts.signals import Judgement, Subject, Verdict
from jobpool.store.records.alerts import Ending

_AGAIN = 0.8
"""Of an age: below this share of the limit all is well."""
_RECENT_MIN = 20.0
"""Fewer attempts, or jobs, say nothing of a rate."""
_IDLE = 5.0
"""With fewer all is well again."""
_DAY_MIN = 50.0
_FAILING = 0.1
"""A smaller share of failures is nothing to be woken for."""
SUBJECTS_MAX = 20
"""So many incidents of one rule may be open."""
_NAMED = 5
_Verdicts = Iterator[tuple[Subject, Verdict]]


def judge(
    seen: Look, notes: Notes, settings: AlertSettings
) -> tuple[dict[Subject, Verdict], Notes]:
    """Judge what was seen.

    Args:
        seen: the look.
        notes: of the one before.
        settings: the rules.

    Returns:
        Verdicts, and notes for the next look; their signals are still the old ones.
    """
    kinds = _kinds(seen, notes)
    depths = _depths(seen, notes)
    missed = _missed(seen, notes)
    verdicts = dict(
        (
            *_no_supervisor(seen, settings),
            *_oldest_age(seen, settings),
            *_depth(seen, depths, settings),
            *_lost(seen, settings),
            *_failure_rate(kinds, settings),
            *_ratio(kinds, settings),
            *_missed_ticks(seen, missed, settings),
            *_stuck_flows(seen, settings),
        )
    )
    return verdicts, msgspec.structs.replace(
        notes,
        at_ms=seen.now_ms,
        kinds=kinds,
        depths=depths,
        missed=missed,
        last_attempt=seen.endings.last_attempt,
    )


# -- notes -----------------------------------------------------------------------------


def _kinds(seen: Look, notes: Notes) -> dict[str, KindNotes]:
    """Return how kinds do, with what has ended since the last look."""
    passed_s = max(0.0, (seen.now_ms - notes.at_ms) / 1000) if notes.at_ms else 0.0
    counts = seen.endings.counts
    found: dict[str, KindNotes] = {}
    for kind in dict.fromkeys((*notes.kinds, *(name for name, _ in counts))):
        one = notes.kinds.get(kind, KindNotes())
        good = counts.get((kind, Ending.SUCCEEDED), 0)
        failed = counts.get((kind, Ending.FAILED), 0)
        lost = seen.endings.lost.get(kind, 0)
        found[kind] = KindNotes(
            one.recent.after(passed_s, RECENT_S).plus(good + failed, failed),
            one.day.after(passed_s, DAY_S).plus(good + failed, failed),
            one.hour.after(passed_s, HOUR_S).plus(good + lost, lost),
        )
    return busiest(found.items())


def _depths(seen: Look, notes: Notes) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return how many jobs of pools were due, every five minutes of half an hour."""
    due, found = _due(seen), {}
    for pool in dict.fromkeys((*notes.depths, *due)):
        jobs = due[pool]
        before = notes.depths.get(pool, ())
        if not before or seen.now_ms - before[-1][0] >= DEPTH_EVERY_MS:
            before = (*before, (seen.now_ms, jobs))
        # One that is older stays: it is what the growth is counted from.
        oldest_ms = seen.now_ms - DEPTH_OVER_MS - DEPTH_EVERY_MS
        kept = tuple(one for one in before if one[0] > oldest_ms)
        if any(count for _, count in kept):
            found[pool] = kept
    return found


def _missed(seen: Look, notes: Notes) -> dict[str, tuple[int, int]]:
    """Return how many ticks schedules have missed, and when that last rose."""
    found = {}
    for row in seen.schedules:
        name = row.declared.name
        before, at_ms = notes.missed.get(name, (row.missed, 0))
        found[name] = (row.missed, seen.now_ms if row.missed > before else at_ms)
    return found


# -- verdicts --------------------------------------------------------------------------


def _no_supervisor(seen: Look, settings: AlertSettings) -> _Verdicts:
    if settings.no_supervisor_s is None:
        return
    heard = served(seen.runs, seen.now_ms)
    due = _due(seen)
    for row in seen.scaling:
        due[row.pool] = max(due[row.pool], row.due)
    for pool, jobs in due.items():
        if jobs and pool not in heard:
            text = f"pool {pool} has {_jobs(jobs, 'due ')}, and no supervisor serves it"
            verdict = Verdict(Judgement.WRONG, text, settings.no_supervisor_s)
            yield ("no_supervisor", pool), verdict


def _due(seen: Look) -> Counter[str]:
    """Count runnable jobs by pool that nothing but want of slots holds back."""
    due: Counter[str] = Counter()
    for row in seen.waiting:
        if not row.paused:
            due[row.pool] += row.jobs - row.blocked
    return due


def _oldest_age(seen: Look, settings: AlertSettings) -> _Verdicts:
    limit_s = settings.oldest_age_s
    if limit_s is None:
        return
    oldest: dict[str, tuple[float, str]] = {}
    for row in seen.waiting:
        if not row.paused and not row.blocked:
            age = (row.oldest_age_s, row.kind)
            oldest[row.pool] = max(oldest.get(row.pool, (0.0, "")), age)
    for pool, (age_s, kind) in oldest.items():
        text = (
            f"the oldest due job of pool {pool} has waited for "
            f"{show_duration(round(age_s))}; it is of {kind}"
        )
        yield (
            ("oldest_age", pool),
            Verdict(_level(age_s >= limit_s, age_s < _AGAIN * limit_s), text),
        )


def _depth(
    seen: Look,
    depths: Mapping[str, tuple[tuple[int, int], ...]],
    settings: AlertSettings,
) -> _Verdicts:
    limit = settings.depth
    if limit is None:
        return
    slots: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for run in seen.reports:
        for pool, report in run.report.pools.items():
            slots[pool][0] += report.busy
            slots[pool][1] += report.size
    due = _due(seen)
    for pool, counts in depths.items():
        at_ms, jobs = counts[0]
        busy, size = slots[pool]
        grown = due[pool] - jobs
        is_full = 0 < size <= busy
        is_long = seen.now_ms - at_ms >= DEPTH_OVER_MS
        text = (
            f"pool {pool} is full, and has {grown:,} more due jobs than half an hour "
            f"ago: {due[pool]:,}"
        )
        is_wrong = is_full and is_long and grown >= limit
        is_well = not is_full or grown < limit / 2
        yield ("depth", pool), Verdict(_level(is_wrong, is_well), text)


def _lost(seen: Look, settings: AlertSettings) -> _Verdicts:
    within = show_duration(LOST_WITHIN_S)
    for (kind, how), count in seen.endings.counts.items():
        limit = None
        if how is Ending.DEAD:
            limit, text = settings.dead, "became dead"
        elif how is Ending.QUARANTINED:
            limit, text = settings.quarantined, "put in quarantine"
        if limit is not None:
            summary = f"{_jobs(count)} of {kind} {text} within {within}"
            yield (how.value, kind), Verdict(_level(count >= limit, False), summary)


def _failure_rate(kinds: Mapping[str, KindNotes], settings: AlertSettings) -> _Verdicts:
    factor = settings.failure_rate
    if factor is None:
        return
    for kind, one in kinds.items():
        recent, day = one.recent, one.day
        is_known = recent.ends >= _RECENT_MIN and day.ends >= _DAY_MIN
        often = max(_FAILING, factor * day.share)
        text = (
            f"{recent.share:.0%} of the attempts of {kind} fail; in the last day it "
            f"was {day.share:.0%}"
        )
        is_well = recent.share < _AGAIN * often or recent.ends < _IDLE
        yield (
            ("failure_rate", kind),
            Verdict(_level(is_known and recent.share >= often, is_well), text),
        )


def _ratio(kinds: Mapping[str, KindNotes], settings: AlertSettings) -> _Verdicts:
    limit = settings.ratio
    if limit is None:
        return
    for kind, one in kinds.items():
        share, is_known = one.hour.share, one.hour.ends >= _RECENT_MIN
        text = (
            f"{share:.0%} of the jobs of {kind} that ended within about an hour are "
            "dead or quarantined"
        )
        is_well = not is_known or share < _AGAIN * limit
        yield (
            ("ratio", kind),
            Verdict(_level(is_known and share >= max(limit, 1e-9), is_well), text),
        )


def _missed_ticks(
    seen: Look, missed: Mapping[str, tuple[int, int]], settings: AlertSettings
) -> _Verdicts:
    limit_s = settings.missed_ticks_s
    if limit_s is None:
        return
    for row in seen.schedules:
        if row.retired_ms is not None or row.paused_ms is not None:
            continue
        name = row.declared.name
        late_s = 0.0 if row.next_ms is None else (seen.now_ms - row.next_ms) / 1000
        missed_ms = missed[name][1]
        is_missed = missed_ms and seen.now_ms - missed_ms < LOST_WITHIN_S * 1000
        if is_missed:
            text = f"schedule {name} has ticks that got no job: {row.missed:,} so far"
        else:
            text = (
                f"the next tick of schedule {name} is late by "
                f"{show_duration(max(0, round(late_s)))}"
            )
        is_wrong = bool(is_missed) or late_s >= limit_s
        yield ("missed_ticks", name), Verdict(_level(is_wrong, not is_wrong), text)


def _stuck_flows(seen: Look, settings: AlertSettings) -> _Verdicts:
    if settings.stuck_flows_s is None:
        return
    long = show_duration(settings.stuck_flows_s)
    for one in seen.stuck:
        which = "a flow" if one.flows == 1 else f"{one.flows:,} flows"
        text = f"nothing of {which} of {one.name} has moved for {long}: {one.ref}"
        yield ("stuck_flows", one.name), Verdict(Judgement.WRONG, text)


def _level(is_wrong: bool, is_well: bool) -> Judgement:  # noqa: FBT001 - in this order
    if is_wrong:
        return Judgement.WRONG
    return Judgement.WELL if is_well else Judgement.BETWEEN


def _jobs(count: int, what: str = "") -> str:
    return f"1 {what}job" if count == 1 else f"{count:,} {what}jobs"


def folded(
    verdicts: Mapping[Subject, Verdict], known: Collection[Subject]
) -> dict[Subject, Verdict]:
    """Bound how many incidents of one rule may open: what is everywhere is told once.

    Of more than `SUBJECTS_MAX` subjects that are wrong, those beyond are one, without a
    name.

    Args:
        verdicts: of one look.
        known: subjects with an open incident: these stay by themselves.
    """
    found = dict(verdicts)
    wrong: defaultdict[str, list[Subject]] = defaultdict(list)
    for subject, verdict in verdicts.items():
        if verdict.judgement is Judgement.WRONG:
            wrong[subject[0]].append(subject)
    for rule, subjects in wrong.items():
        subjects.sort(key=lambda one: one not in known)
        if beyond := subjects[SUBJECTS_MAX:]:
            names = ", ".join(sorted(name for _, name in beyond)[:_NAMED])
            text = f"{rule}: also of {len(beyond):,} others, such as {names}"
            for subject in beyond:
                del found[subject]
            found[rule, ""] = Verdict(Judgement.WRONG, text, verdicts[beyond[0]].for_s)
    return found
