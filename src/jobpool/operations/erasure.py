"""Erase what jobs hold of anybody's data, and what the audit trail says of them.

A finished job's row stays, for statistics. What tells of a job elsewhere is done first:
the trail, and the jobs of hooks, which carry its arguments and error. A job that was
erased is not found again by its tenant, so that an erasure which was interrupted could
not tell any more what is about it.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from jobpool.core.application.handler_spec import HOOK_DEAD, HOOK_QUARANTINED
from jobpool.core.jobs.job import FINISHED, Job
from jobpool.errors import UsageError
from jobpool.operations.action import Action, Change, Done, Step
from jobpool.operations.principal import Principal
from jobpool.operations.selection import Selection, matching
from jobpool.operations.trail.id_ranges import ranges
from jobpool.store.protocol import Store
from jobpool.store.records.operating import AuditFilter, AuditRow, Belongings, Filter

MARK = "[erased]"
"""Stands in the audit trail for a name or a note that was erased."""
STEP_S = 0.02
"""How long one step should take: others write in between."""
_FIRST_STEP, _STEP_MAX = 50, 500
_PAGE = 1000
_PERSONAL = ("tenant", "key", "text")
"""Conditions of a filter that may name a person."""
_IMPERSONAL = ("kind", "kind_to", "pool", "ids", "new_ids", "when", "schedules")
"""What names code, jobs or times, and no tenant, even if it reads the same."""


class Survey(NamedTuple):
    """What an erasure would be about."""

    ids: list[int]
    """Of the jobs to be erased, oldest first."""
    hooks: list[int]
    """Of jobs of hooks to be erased, which tell of such a job."""
    states: Counter[str]
    """The number of all these jobs by state."""
    unfinished: dict[int, str]
    """States, as shown, of jobs that are meant as well, but have not ended."""
    missing: list[str]
    """Remarks about ids that no job has."""


class _Subject(msgspec.Struct):
    id: int


class _Told(msgspec.Struct):
    """The payload of a hook's job, as far as it matters here."""

    job: _Subject


class Erase(Action, frozen=True, kw_only=True):
    """Delete all data of finished jobs; their rows stay, without it."""

    name = "erase"
    jobs: Selection
    before_ms: int | None = None
    """Only jobs that ended before this moment; those that have not are not meant."""
    cancels: bool = False
    """Cancel jobs that have not ended, instead of refusing."""
    rewrite: bool = False
    """Copy the tables afterwards, so that no remains are left in free room."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`: it does not say whose data it was."""
        return _anonymous(self.jobs.target(), None)

    def survey(self, store: Store) -> Survey:
        """Find the jobs that are meant; changes nothing.

        Raises:
            UsageError: neither ids nor a filter are given, or both.
        """
        if bool(self.jobs.ids) == (self.jobs.which is not None):
            raise UsageError(
                "erase: expected either ids or a filter; nothing was changed"
            )
        survey = Survey([], [], Counter(), {}, [])
        is_of_all = not self.jobs.shown and self.before_ms is None
        for job in self._meant(store, survey.missing):
            if job.state not in FINISHED:
                if is_of_all:
                    survey.unfinished[job.id] = job.shown_state
            elif self._is_old(job) and not (job.is_erased and not self.jobs.ids):
                survey.ids.append(job.id)
                survey.states[job.shown_state] += 1
        survey.ids.sort()
        for job in _hooks_about(store, survey.ids):
            if job.state not in FINISHED:
                survey.unfinished[job.id] = job.shown_state
            else:
                survey.hooks.append(job.id)
                survey.states[job.shown_state] += 1
        return survey

    def _meant(self, store: Store, missing: list[str]) -> Iterator[Job]:
        if self.jobs.which is not None:
            yield from matching(store, self.jobs.which, self.jobs.shown)
        for job_id in dict.fromkeys(self.jobs.ids):
            job = store.get(job_id)
            if job is None:
                missing.append(f"there is no job {job_id} in {store.url}")
            else:
                yield job

    def _is_old(self, job: Job) -> bool:
        ended_ms = job.finished_at_ms or 0
        return self.before_ms is None or ended_ms < self.before_ms

    def entries(self, store: Store, ids: Sequence[int]) -> list[AuditRow]:
        """Return entries of the trail to be changed, as they will be.

        Their notes are erased, and the names of tenants and keys.

        Args:
            store: has the trail.
            ids: of the jobs to be erased, in order.
        """
        tenant = None if self.jobs.which is None else self.jobs.which.tenant
        changed: list[AuditRow] = []
        before: int | None = None
        while page := store.audits(AuditFilter(), _PAGE, before):
            found = (_erased_entry(row, ids, tenant) for row in page)
            changed += [row for row in found if row is not None]
            before = page[-1].id
        return changed

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`.

        Raises:
            UsageError: some jobs have not ended; nothing was erased.
        """
        del by
        survey = self.survey(store)
        if survey.unfinished and not self.cancels:
            raise UsageError(unfinished_words(survey.unfinished))
        remarks = survey.missing
        if survey.unfinished:
            yield from _batches(store.cancel, list(survey.unfinished), counts=False)
            store.wake()
            survey = self.survey(store)
            if survey.unfinished:
                remarks.append(
                    f"running jobs that were told to stop: {len(survey.unfinished)}; "
                    "once they have, give the same command again"
                )
        done.refused = remarks
        done.matched = len(survey.ids) + len(survey.hooks)
        rows = self.entries(store, survey.ids)
        for start in range(0, len(rows), _STEP_MAX):
            yield _amend(store, rows[start : start + _STEP_MAX])
        yield from _batches(store.erase, survey.hooks)
        yield from _batches(store.erase, survey.ids)
        done.notes = store.wipe(rewrite=self.rewrite)


def _hooks_about(store: Store, ids: Sequence[int]) -> Iterator[Job]:
    """Yield the jobs of hooks that tell of some jobs and are not among them.

    Args:
        store: has them; how many depends on the retention of dead jobs.
        ids: of the jobs, in order.
    """
    for kind in (HOOK_DEAD, HOOK_QUARANTINED) if ids else ():
        for job in matching(store, Filter(kind=kind), ()):
            told_of = _subject(store.payload(job.id))
            if told_of is not None and _is_in(told_of, ids) and not _is_in(job.id, ids):
                yield job


def _subject(payload: bytes | None) -> int | None:
    """Return the job that a hook was told of; None: it was erased, or is no hook's."""
    try:
        return msgspec.json.decode(payload or b"", type=_Told).job.id
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_in(one: int, ids: Sequence[int]) -> bool:
    place = bisect_left(ids, one)
    return place < len(ids) and ids[place] == one


def belongings(store: Store, ids: Sequence[int]) -> Belongings:
    """Count what jobs have beside their rows, however many they are."""
    pages = [
        store.belongings(ids[start : start + _PAGE])
        for start in range(0, len(ids), _PAGE)
    ]
    return Belongings(
        attempts=sum(page.attempts for page in pages),
        outputs=sum(page.outputs for page in pages),
    )


def unfinished_words(unfinished: Mapping[int, str]) -> str:
    """Return why jobs that have not ended cannot be erased, and what to do."""
    states = Counter(unfinished.values())
    by_state = ", ".join(f"{jobs} {state}" for state, jobs in states.most_common())
    have = "has" if len(unfinished) == 1 else "have"
    return (
        f"{len(unfinished)} of these jobs {have} not ended ({by_state}), and may still "
        "need what is stored. Wait, or cancel them first with jobpool cancel, or with "
        "--cancel here; nothing was erased"
    )


def _batches(act: Any, ids: Sequence[int], *, counts: bool = True) -> Iterator[Step]:
    """Yield steps that take about `STEP_S` each."""
    start, size = 0, _FIRST_STEP
    while start < len(ids):
        batch = ids[start : start + size]
        start += len(batch)
        began_s = time.monotonic()
        yield _step(act, batch, counts=counts)
        took_s = max(time.monotonic() - began_s, STEP_S / 2)
        size = max(1, min(_STEP_MAX, round(len(batch) * STEP_S / took_s)))


def _step(act: Any, batch: Sequence[int], *, counts: bool) -> Step:
    def step() -> Change:
        jobs = act(batch)
        if not counts:
            return Change(is_made=jobs > 0)
        return Change(is_made=jobs > 0, jobs=jobs, ids=batch)

    return step


def _amend(store: Store, rows: Sequence[AuditRow]) -> Step:
    def step() -> Change:
        for row in rows:
            store.amend_audit(row.id, target=row.target, note=row.note)
        return Change(is_made=True)

    return step


def _erased_entry(
    row: AuditRow, ids: Sequence[int], tenant: str | None
) -> AuditRow | None:
    """Return an entry without personal data; None: it stays as it is."""
    target = _decoded(row.target)
    is_about = row.action != Erase.name and _names_any(target, ids)
    if not is_about and not _names(tenant, {**target, "note": row.note}):
        return None
    erased = msgspec.structs.replace(
        row,
        target=msgspec.json.encode(_anonymous(target, tenant)).decode(),
        note=None if row.note is None else MARK,
    )
    return None if (erased.target, erased.note) == (row.target, row.note) else erased


def _decoded(target: str) -> dict[str, Any]:
    """Return a target; one that another program has damaged is erased as a whole."""
    try:
        return msgspec.json.decode(target, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {"key": target}


def _names_any(target: Mapping[str, Any], ids: Sequence[int]) -> bool:
    """Say whether an entry names one of some jobs, or may do so; *ids* in order."""
    texts = (str(target.get(part, "")) for part in ("ids", "new_ids"))
    for first, last in (pair for text in texts for pair in ranges(text)):
        place = bisect_left(ids, first)
        if place < len(ids) and ids[place] <= last:
            return True
    return False


def _names(tenant: str | None, texts: Mapping[str, Any]) -> bool:
    """Say whether one of some texts names a tenant, as a word of its own."""
    if tenant is None:
        return False
    word = re.compile(rf"(?<!\w){re.escape(tenant)}(?!\w)")
    return any(
        isinstance(text, str) and word.search(text)
        for name, text in texts.items()
        if name not in _IMPERSONAL
    )


def _anonymous(target: Mapping[str, Any], tenant: str | None) -> dict[str, Any]:
    return {
        name: MARK if name in _PERSONAL or _names(tenant, {name: value}) else value
        for name, value in target.items()
    }
