"""One kind: how much its attempts use, what limits would fit, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from jobpool.core.config.layers import nearest
from jobpool.core.rules.circuit_breaker import Saved
from jobpool.core.rules.run_report import ReportRow
from jobpool.core.rules.usage.sketch import Counts, Measure
from jobpool.core.rules.usage.tuning import Proposal
from jobpool.dashboard.asked import Asked, NotKnown
from jobpool.dashboard.reading import Unknown
from jobpool.dashboard.rendering import duration, size
from jobpool.dashboard.screens.kinds.distribution import (
    SIZES,
    TIMES,
    Distribution,
    distribution,
)
from jobpool.dashboard.screens.kinds.listing import (
    Use,
    is_crashing,
    use_of,
)
from jobpool.operations.queue import Pause, Resume
from jobpool.operations.redaction import Redactor
from jobpool.store.protocol import Store
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.reading import EndRow, SampleRow, SketchRow, merged
from jobpool.store.records.runs import KindRecord
from jobpool.words.tuning.advice import KindAdvice, advice_of
from jobpool.words.tuning.reasons import remarks_on, why

_ENDS_LOOKED_AT = 500
_ENDS_MAX = 12
_ARGUMENTS_MAX = 50


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """An argument, as the kind's schema has it."""

    name: str
    type: str
    is_required: bool


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Memory or time of a kind in one pool."""

    use: Use
    plot: Distribution | None
    why: str
    """What the proposal would have changed, or why there is none."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A kind in one pool."""

    pool: str
    memory: Measured
    time: Measured
    remarks: tuple[str, ...]


class Read(NamedTuple):
    """What is read of one kind."""

    kinds: Sequence[KindRecord]
    reports: Sequence[ReportRow]
    pauses: Sequence[PauseRow]
    breakers: Sequence[Saved]
    sketches: Sequence[SketchRow]
    ends: Sequence[tuple[EndRow, str]]
    """Its last attempts that did not succeed, each with its job's ref."""


class KindView(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows."""

    record: KindRecord | None
    parts: tuple[Part, ...]
    arguments: tuple[Argument, ...]
    pause: PauseRow | None
    is_crashing: bool
    ends: Sequence[tuple[EndRow, str]]


async def show(asked: Asked) -> Response:
    """Answer with the page."""
    kind = asked.part("kind")

    def read(store: Store) -> Read:
        return read_of(store, kind)

    found = await asked.reading.read(read)
    samples = await asked.served.live.shared(
        "samples", lambda store: store.samples(), every_s=60.0
    )
    seen: Unknown | KindView
    if isinstance(found, Unknown):
        seen = found
    else:
        seen = view_of(kind, found, () if isinstance(samples, Unknown) else samples)
    return asked.page(
        "kind.html",
        kind=kind,
        seen=seen,
        samples=samples,
        actions={"pause": Pause, "resume": Resume},
    )


def read_of(store: Store, kind: str) -> Read:
    """Read what there is of a kind.

    Raises:
        NotKnown: nobody has published it, and no attempt of it was counted.
    """
    kinds, sketches = store.kinds(), store.sketches(kind)
    names = {one.kind for one in kinds}
    if kind not in names and not sketches:
        raise NotKnown(
            f"no supervisor knows kind {kind[:200]!r}; {nearest(kind, names)}"
        )
    redactor = Redactor(store, kinds)
    ends = [one for one in store.ends(_ENDS_LOOKED_AT) if one.kind == kind][:_ENDS_MAX]
    return Read(
        kinds=kinds,
        reports=store.run_reports(),
        pauses=store.pauses(),
        breakers=store.breakers(),
        sketches=sketches,
        ends=[(_shown(store, redactor, one), store.ref_of(one.job_id)) for one in ends],
    )


def _shown(store: Store, redactor: Redactor, end: EndRow) -> EndRow:
    """Return an end with its reason as it may be shown."""
    job = store.get(end.job_id) if redactor.hides_anything else None
    if job is not None:
        reason = redactor.of(job).text(end.reason)
    else:  # of one that was pruned just now nobody knows what it hides
        reason = None if redactor.hides_anything else end.reason
    return msgspec.structs.replace(end, reason=reason)


def view_of(kind: str, found: Read, samples: Sequence[SampleRow]) -> KindView:
    """Return what the page shows.

    Args:
        kind: which.
        found: what was read of it.
        samples: newest successes with the size of their arguments; empty: not found.
    """
    record = next((one for one in found.kinds if one.kind == kind), None)
    advice = advice_of(
        found.sketches,
        samples=[one for one in samples if one.kind == kind],
        kinds=found.kinds,
        reports=found.reports,
        pools=(),
    )
    counts = merged(found.sketches)
    pauses = [one for one in found.pauses if (one.what, one.name) == ("kind", kind)]
    return KindView(
        record=record,
        parts=tuple(_part(one, counts) for one in advice.kinds),
        arguments=() if record is None else tuple(arguments_of(record.schema)),
        pause=pauses[0] if pauses else None,
        is_crashing=is_crashing(kind, found.breakers),
        ends=found.ends,
    )


def _part(
    one: KindAdvice, counts: Mapping[tuple[str, str, Measure], Mapping[int, Counts]]
) -> Part:
    memory = counts.get((one.kind, one.pool, Measure.MEMORY), {})
    time = counts.get((one.kind, one.pool, Measure.DURATION), {})
    return Part(
        pool=one.pool,
        memory=Measured(
            use=use_of(one.memory),
            plot=distribution(memory, _marks(one.memory, 1.0), SIZES, _size),
            why=why(one.memory, size),
        ),
        time=Measured(
            use=use_of(one.time),
            plot=distribution(time, _marks(one.time, 1000.0), TIMES, _time),
            why=why(one.time, duration),
        ),
        remarks=tuple(remarks_on(one)),
    )


def _marks(limit: Proposal, times: float) -> list[tuple[str, str, float | None]]:
    """Return what is drawn in: in the units of sketches, which are so many times it."""
    values = (
        ("limit", "limit", limit.now),
        ("proposed", "would fit", limit.proposed if limit.next != limit.now else None),
        ("p99", "P99", limit.p99),
    )
    return [
        (look, name, None if value is None else value * times)
        for look, name, value in values
    ]


def _size(value: float) -> str:
    return size(round(value))


def _time(value_ms: float) -> str:
    return duration(value_ms / 1000)


def arguments_of(schema: bytes) -> list[Argument]:
    """Return the arguments that a published schema names; empty: it cannot be read."""
    try:
        whole = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return []
    properties = whole.get("properties") if isinstance(whole, dict) else None
    if not isinstance(properties, dict):
        return []
    required = whole.get("required")
    needed = required if isinstance(required, list) else []
    return [
        Argument(name=name, type=_type(said), is_required=name in needed)
        for name, said in list(properties.items())[:_ARGUMENTS_MAX]
    ]


def _type(said: Any) -> str:
    """Return what a property may be, shortly."""
    if not isinstance(said, dict):
        return "anything"
    if isinstance(given := said.get("type"), list):
        return " or ".join(map(str, given))
    if isinstance(given, str):
        return given
    if "enum" in said:
        return "one of some values"
    if isinstance(options := said.get("anyOf"), list):
        return " or ".join(dict.fromkeys(map(_type, options)))
    return str(said["$ref"]).rpartition("/")[2] if "$ref" in said else "anything"
