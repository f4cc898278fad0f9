"""Stragglers: runnable jobs of laned kinds that are of no lane yet, or of a wrong one.

Theory of operation. Clients stamp a job with its lane if they know that its kind has
quotas. Others do not: older clients, whoever inserts a row, and those that came before
a rule of tenants. There is no index of such jobs, since it would cost every job of
every queue. So each claim looks at what has come since the last one, in the order of
the index by which plain jobs are leased, and a walk goes over all that is there, some
at a time, for what was due earlier than what the claim has seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from jobpool.core.rules.quotas.lanes import again, lane_id, value_at
from jobpool.core.rules.quotas.rules import Rules
from jobpool.errors import UsageError
from jobpool.store.statements.limits import encoded_values, values_from
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Query, Row, Session

_FEW = 32
MANY = 1000
"""Jobs that are stamped in one claim, at most."""
_SOME = 250
"""Jobs that are looked at, as long as none is found."""
_WALK_EVERY_MS = 50
_REST_FROM = 100
_REST_MS = 0.4
"""Pause for each job that was looked at in vain, from so many on: every supervisor
looks at each of them, and there is nearly never anything to find."""
_STEPS = 8
"""At most so many looks follow one from another."""
_ABOVE_ALL = 32_768
"""Higher than any priority."""
_FIRST_MS = -(2**62)
Kind = tuple[str, str]
"""A pool, and a kind."""


class _Place(NamedTuple):
    """After which job to go on."""

    run_at_ms: int = _FIRST_MS
    id: int = 0


_BEGIN = _Place()


@dataclass(slots=True)
class _Range:
    """The runnable jobs of one kind and priority."""

    end: _Place | None = None
    """The last job that was seen; None: there are few, and all are looked at."""
    walked_to: _Place = _BEGIN


class _Look(NamedTuple):
    """At which jobs to look."""

    kind: Kind
    priority: int
    place: _Place
    is_walk: bool = False


class Looking(NamedTuple):
    """A query for stragglers."""

    looks: Sequence[_Look]
    most: int
    """Jobs that are looked at in each place."""
    query: Query


class Walk:
    """Where one store object has looked for stragglers."""

    def __init__(self) -> None:
        self._ranges: dict[Kind, dict[int, _Range]] = {}
        self._walked_ms = 0
        self._rests: tuple[int, int] = 0, 0
        """From when until when it looks at nothing."""
        self._finds = False
        """There were some: to look for more is worth the time."""

    def first(self, kinds: Sequence[Kind], now_ms: int) -> Looking:
        """Return where to look first."""
        begin_ms, end_ms = self._rests
        if begin_ms <= now_ms < end_ms:
            return self._asking([])
        self._rests = now_ms, now_ms
        walks = self._finds or abs(now_ms - self._walked_ms) >= _WALK_EVERY_MS
        if walks:
            self._walked_ms = now_ms
        return self._asking(
            [look for kind in kinds for look in self._looks(kind, walks=walks)]
        )

    def found(
        self, session: Session, looking: Looking, rows: Sequence[Row]
    ) -> list[int]:
        """Return some stragglers.

        Args:
            session: asked for more, because of what was seen first.
            looking: where was looked first.
            rows: what was seen there.
        """
        found: list[int] = []
        jobs = 0
        for _ in range(_STEPS):
            jobs += len(rows)
            stray, more = self._seen(session, looking, rows)
            found += stray
            if not more:
                break
            looking = self._asking(more)
            name, given = looking.query
            rows = session.rows(name, **given)
        self._finds = bool(found)
        if looking.looks and jobs >= _REST_FROM and not found:
            now_ms, _ = self._rests
            self._rests = now_ms, now_ms + round(jobs * _REST_MS)
        return list(dict.fromkeys(found))

    def _asking(self, looks: Sequence[_Look]) -> Looking:
        most = max(_FEW, (MANY if self._finds else _SOME) // max(1, len(looks)))
        rows = as_json((*one.kind, one.priority, *one.place) for one in looks)
        return Looking(looks, most, ("find_stragglers", {"rows": rows, "limit": most}))

    def _looks(self, kind: Kind, *, walks: bool) -> Iterator[_Look]:
        yield _Look(kind, _ABOVE_ALL, _BEGIN)  # Which priorities are there?
        for priority, known in self._ranges.get(kind, {}).items():
            yield _Look(kind, priority, known.end or _BEGIN)
            if walks and known.end is not None:
                yield _Look(kind, priority, known.walked_to, is_walk=True)

    def _seen(
        self, session: Session, looking: Looking, rows: Sequence[Row]
    ) -> tuple[list[int], list[_Look]]:
        """Return stragglers, and where else to look, because of what was seen."""
        looks, most, _ = looking
        found: list[int] = []
        more: list[_Look] = []
        for number, of_look in groupby(rows, key=itemgetter(0)):
            look, seen = looks[number], list(of_look)
            jobs = [row[2:] for row in seen[:most] if row[2] is not None]
            stray = [job_id for job_id, _, is_in_lane in jobs if not is_in_lane]
            found += stray
            ranges = self._ranges.setdefault(look.kind, {})
            lower = seen[0][1]
            if lower is not None and lower not in ranges:
                ranges[lower] = _Range()
                more.append(_Look(look.kind, lower, _BEGIN))
            if look.priority != _ABOVE_ALL:
                self._note(session, look, jobs, is_full=len(jobs) >= most)
        return found, more

    def _note(
        self, session: Session, look: _Look, jobs: Sequence[Row], *, is_full: bool
    ) -> None:
        """Remember how far a look has come."""
        known = self._ranges[look.kind][look.priority]
        last = _Place(jobs[-1][1], jobs[-1][0]) if jobs else look.place
        if look.is_walk:
            is_short = look.place == _BEGIN and len(jobs) < _FEW
            known.walked_to = last if is_full else _BEGIN
            known.end = None if is_short else known.end
        elif known.end is not None:
            known.end = last
        elif len(jobs) >= _FEW:
            pool, kind = look.kind
            ((run_at_ms, job_id),) = session.rows(
                "last_of_priority", pool=pool, kind=kind, priority=look.priority
            )
            known.end, known.walked_to = _Place(run_at_ms, job_id), last
        elif not jobs:
            del self._ranges[look.kind][look.priority]


def stamp(session: Session, rules: Rules, ids: Sequence[int]) -> None:
    """Give jobs the lanes that they are of by the rules that are in force."""
    if not ids:
        return
    rows = session.rows("hold_stragglers", ids=as_json(ids), kinds="[]")
    kinds = {row[2] for row in rows}
    paths = {kind: rules.counted_paths(kind) for kind in kinds}
    budgeted = {kind for kind in kinds if rules.is_budgeted(kind)}
    counting = sorted(kind for kind, needed in paths.items() if needed)
    if counting:
        rows = session.rows(
            "hold_stragglers", ids=as_json(ids), kinds=as_json(counting)
        )
    stamped = []
    for job_id, pool, kind, priority, tenant, known, is_retry, payload in rows:
        values = _values(paths[kind], known, payload)
        lane = lane_id(pool, kind, priority, tenant, values)
        if is_retry and kind in budgeted:
            lane = again(lane)
        stamped.append((job_id, lane, encoded_values(values) if values else None))
    if stamped:
        session.run("stamp_jobs", rows=as_json(stamped))


def _values(paths: Iterable[str], known: object, payload: Any) -> dict[str, str]:
    """Return what a job counts by: as it was stamped, else from its arguments.

    What cannot be found there counts as nothing, as it does for a client.
    """
    stamped = values_from(known) or {}
    missing = [path for path in paths if path not in stamped]
    if not missing:
        return {path: stamped[path] for path in paths}
    try:
        arguments = msgspec.json.decode(payload or b"{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        arguments = {}
    return {
        path: stamped[path] if path in stamped else _counted(path, arguments)
        for path in paths
    }


def _counted(path: str, arguments: Mapping[str, Any]) -> str:
    try:
        return value_at(path, arguments)
    except UsageError:  # of a type that no client would have accepted
        return ""
