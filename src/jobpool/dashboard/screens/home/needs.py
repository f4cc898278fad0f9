"""What needs somebody: each with the one action that is probably right. Pure.

In the order in which it should be looked at: what stops everything, what is lost until
somebody acts, what holds jobs back, what may become a problem.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.quotas.breaker import BreakerState
from jobpool.dashboard.live.readers import ASKS_MAX, Backlog
from jobpool.dashboard.rendering import duration
from jobpool.monitoring.alerts.catalogue import RULES, Severity
from jobpool.monitoring.glance.glance import Glance
from jobpool.operations.action import Action
from jobpool.operations.flows import Approve
from jobpool.operations.jobs import Release, Retry
from jobpool.operations.queue import Resume
from jobpool.store.records.alerts import Incident
from jobpool.store.records.flows import AskRow
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.reading import EndRow
from jobpool.words.pauses import pause_words

_MOST = 12
"""So many are shown; the rest are counted."""
_TOLD_ELSEWHERE = frozenset({"dead", "quarantined", "stuck_flows"})
"""Rules of incidents about what has a line of its own here."""
_WAYS: Mapping[str, tuple[str, str, str]] = {
    "no_supervisor": ("Supervisors", "supervisors", ""),
    "dead": ("Dead", "dead", "kind"),
    "quarantined": ("Quarantine", "quarantine", "kind"),
    "stuck_flows": ("Flows", "flows", ""),
    "oldest_age": ("Jobs", "jobs", "pool"),
    "depth": ("Jobs", "jobs", "pool"),
    "failure_rate": ("Kind", "kind", "kind"),
    "ratio": ("Kind", "kind", "kind"),
    "missed_ticks": ("Schedule", "schedule", "schedule"),
}
"""Where to look by an incident's rule: a page, and what its subject is there."""
_LOST = (
    (JobState.QUARANTINED, "aside", "quarantined", "quarantine", Release),
    (JobState.DEAD, "bad", "dead", "dead", Retry),
)


@dataclass(frozen=True)
class Way:
    """Where a button leads."""

    text: str
    route: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_main: bool = False
    action: type[Action] | None = None
    """What it leads to, or does: who may not is not shown it."""
    fields: Mapping[str, str] | None = None
    """It is a form with one button, which sends these; None: it is a link."""


@dataclass(frozen=True)
class Need:
    """One thing that needs somebody."""

    tone: str
    what: str
    name: str = ""
    """Of a kind, a pool, a quota."""
    more: str = ""
    ways: tuple[Way, ...] = ()
    command: str = ""
    """What to type, where nothing here can do it."""


@dataclass(frozen=True)
class Needs:
    """All of them, as far as they are shown."""

    shown: tuple[Need, ...]
    left_out: int


def needs_of(glance: Glance, backlog: Backlog | None) -> Needs:
    """Return what needs somebody.

    Args:
        glance: what runs.
        backlog: what was counted; None: nothing was, yet.
    """
    found = list(_supervisors(glance, backlog))
    if backlog is not None:
        found += _database(backlog)
        found += _lost(glance, backlog)
        found += _breakers(backlog)
    found += _crashing(glance)
    found += _pauses(glance)
    if backlog is not None:
        found += _unserved(glance, backlog)
        found += _asks(backlog)
        found += _flows(backlog)
        found += _incidents(glance, backlog)
    return Needs(tuple(found[:_MOST]), max(0, len(found) - _MOST))


def _supervisors(glance: Glance, backlog: Backlog | None) -> Iterator[Need]:
    if not glance.alive:
        due = 0 if backlog is None else sum(one.due for one in glance.pools)
        is_any = bool(glance.silent)
        until = f"nothing begins until one {'is back' if is_any else 'starts'}"
        yield Need(
            "bad",
            "No supervisor is heard of" if is_any else "No supervisor is running",
            more=f"{due:,} due jobs wait" if due else until,
            command="" if is_any else "jobpool --pools cpu=4,io=16",
        )
    for why in glance.silent:
        yield Need(
            "warn",
            "Silent",
            more=why,
            ways=(Way("Supervisors", "supervisors"),),
        )


def _database(backlog: Backlog) -> Iterator[Need]:
    for concern in backlog.concerns:
        yield Need("warn", "The store", more=concern, command="jobpool doctor")


def _lost(glance: Glance, backlog: Backlog) -> Iterator[Need]:
    for state, tone, word, route, act in _LOST:
        jobs: Counter[str] = Counter()
        for row in backlog.counts.depths:
            if row.state == state:
                jobs[row.kind] += row.jobs
        last: dict[str, EndRow] = {}
        for end in glance.deaths:
            if end.state == state:
                last.setdefault(end.kind, end)
        for place, (kind, count) in enumerate(jobs.most_common()):
            is_first = state is JobState.QUARANTINED and not place
            chosen = {"state": state.value, "kind": kind, "act": act.name}
            ways = (
                Way(f"{act.name.capitalize()} …", "jobs_act", chosen, action=act),
                Way("See the deaths", route, {"kind": kind}, is_main=is_first),
            )
            yield Need(
                tone,
                f"{count:,} {word}",
                kind,
                _death(last.get(kind)),
                ways=ways,
            )


def _death(end: EndRow | None) -> str:
    """Return how the last of them ended."""
    if end is None:
        return ""
    return f"the last one: {end.reason or end.error_class or end.outcome}"


def _breakers(backlog: Backlog) -> Iterator[Need]:
    now_ms = backlog.counts.at_ms or 0
    for quota in backlog.counts.quotas:
        service = None if quota.bucket is None else quota.bucket.service
        if service is None or service.state is BreakerState.CLOSED:
            continue
        until_ms = service.until_ms
        parts = (
            f"{service.failures:,} of {service.requests:,} calls failed"
            if service.requests
            else "",
            "its next call is a probe"
            if until_ms is None or until_ms <= now_ms
            else f"probe in {duration((until_ms - now_ms) / 1000)}",
            f"{quota.waiting:,} jobs wait, uncharged" if quota.waiting else "",
        )
        yield Need(
            "warn",
            "Breaker open",
            f"quota {quota.name}",
            "; ".join(filter(None, parts)),
            ways=(Way("Quota", "quota", {"quota": quota.name}),),
        )


def _crashing(glance: Glance) -> Iterator[Need]:
    for one in glance.crashing:
        wait = f"in {duration(one.wait_s)}"
        yield Need(
            "bad",
            "Crashing kind",
            one.kind,
            f"{one.crashes} different jobs crashed in a row; its jobs are tried one at "
            f"a time, the next {'now' if one.wait_s < 1 else wait}",
            ways=(
                _resume("kind", one.kind, "Try all"),
                Way("See the deaths", "jobs", {"kind": one.kind}),
            ),
        )


def _pauses(glance: Glance) -> Iterator[Need]:
    for pause in glance.pauses:
        what = f"{pause.what} {pause.name}" if pause.name else ""
        yield Need(
            "warn",
            "Paused" if what else "Everything is paused",
            what,
            pause_words(pause, glance.at_ms),
            ways=tuple(_ways_of_pause(pause)),
        )


def _ways_of_pause(pause: PauseRow) -> Iterator[Way]:
    yield _resume(pause.what, pause.name, "Resume")
    if pause.what in ("kind", "quota", "tenant"):
        yield Way(pause.what.capitalize(), pause.what, {pause.what: pause.name})


def _resume(what: str, name: str, text: str) -> Way:
    fields = {"what": what, "name": name}
    return Way(text, "resume", action=Resume, fields=fields)


def _unserved(glance: Glance, backlog: Backlog) -> Iterator[Need]:
    for pool in glance.pools:
        if glance.alive and pool.due and not pool.hosts:
            yield Need(
                "warn",
                "No supervisor serves",
                f"pool {pool.name}",
                f"{pool.due:,} due jobs wait{_oldest(pool.oldest_s)}",
                command=f"jobpool --pools {pool.name}=N",
            )
    for row in backlog.counts.waiting:
        if not row.known:
            yield Need(
                "warn",
                "No supervisor knows",
                row.kind,
                f"{row.jobs:,} due jobs wait{_oldest(row.oldest_age_s)}; start an "
                "application that has this kind",
                ways=(Way("Jobs", "jobs", {"kind": row.kind}),),
            )


def _oldest(seconds: float | None) -> str:
    return "" if seconds is None else f", the oldest for {duration(seconds)}"


def _asks(backlog: Backlog) -> Iterator[Need]:
    now_ms = backlog.counts.at_ms or 0
    alike: defaultdict[tuple[str, str], list[AskRow]] = defaultdict(list)
    for ask in backlog.asks:
        alike[ask.flow_name, ask.name].append(ask)
    least = "at least " if len(backlog.asks) >= ASKS_MAX else ""
    for (flow, step), asks in alike.items():
        ends_ms = [one.until_ms for one in asks if one.until_ms is not None]
        until = ""
        if ends_ms:
            left_s = max(0.0, (min(ends_ms) - now_ms) / 1000)
            which = "its" if len(asks) == 1 else "the first"
            until = f"; {which} time runs out in {duration(left_s)}"
        is_one = len(asks) == 1 and not least
        yield Need(
            "warn",
            "Asks for a decision"
            if is_one
            else f"{least}{len(asks):,} ask for a decision".capitalize(),
            flow,
            f"step {step}{until}",
            ways=(
                Way("Decide", "flow", {"ref": asks[0].ref}, action=Approve)
                if is_one
                else Way("See them", "flows"),
            ),
        )


def _flows(backlog: Backlog) -> Iterator[Need]:
    for number, name in backlog.stuck:
        yield Need(
            "warn",
            "Stuck flow",
            name,
            f"flow {number}: nothing of it has moved for an hour",
            ways=(Way("Flows", "flows"),),
        )


def _incidents(glance: Glance, backlog: Backlog) -> Iterator[Need]:
    for incident in backlog.incidents:
        rule, subject = incident.rule, incident.subject
        if rule in _TOLD_ELSEWHERE or (rule == "no_supervisor" and not glance.alive):
            continue
        known, way = RULES.get(rule), way_of(incident)
        yield Need(
            "bad" if known is not None and known.severity is Severity.PAGE else "warn",
            rule.replace("_", " ").capitalize() if known is None else known.section,
            subject,
            incident.summary,
            ways=(
                *(() if way is None else (way,)),
                Way("What to do", "incidents"),
            ),
        )


def way_of(incident: Incident) -> Way | None:
    """Return where an incident can be looked into; None: nowhere by itself."""
    way = _WAYS.get(incident.rule)
    if way is None:
        return None
    text, route, what = way
    if what and not incident.subject:  # of more than there is room for
        return None
    return Way(text, route, {what: incident.subject} if what else {})
