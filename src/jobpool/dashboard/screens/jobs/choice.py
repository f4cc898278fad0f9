"""Which jobs a page is about: the parameters of its URL, and the filter they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.datastructures import ImmutableMultiDict

from jobpool.core.jobs.job import TIME_MAX_MS, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.units import duration_s
from jobpool.errors import ConfigError
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter
from jobpool.store.records.reading import Spot
from jobpool.words.jobs.states import RETRYABLE, STATES

OUTCOMES = tuple(outcome.value for outcome in Outcome)
TEXTS = (
    "kind",
    "pool",
    "tenant",
    "key",
    "flow",
    "outcome",
    "error_class",
    "text",
    "since",
)
"""Parameters that name one value each; ``state`` may be repeated."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen, as it is in the URL."""

    states: tuple[str, ...] = ()
    given: Mapping[str, str] = {}
    """Values of `TEXTS`."""
    wrong: str = ""
    """What of it means nothing; such a choice means no job."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The parameters, for links and for forms."""
        return [*(("state", one) for one in self.states), *self.given.items()]

    @property
    def is_any(self) -> bool:
        """Whether all jobs are meant."""
        return not (self.states or self.given or self.wrong)

    def with_states(self, *states: str) -> Choice:
        """Return the same with other states."""
        return msgspec.structs.replace(self, states=states)

    def with_given(self, **given: str | None) -> Choice:
        """Return the same with other values; None: any."""
        both = {**self.given, **given}
        kept = {name: value for name, value in both.items() if value is not None}
        return msgspec.structs.replace(self, given=kept)


def choice_of(query: ImmutableMultiDict[str, str]) -> Choice:
    """Read the parameters of a URL or of a form; empty ones count as left out."""
    states = tuple(dict.fromkeys(one for one in query.getlist("state") if one))
    given = {name: query[name].strip() for name in TEXTS if query.get(name, "").strip()}
    unknown = [one for one in states if one not in STATES]
    if unknown:
        return Choice(given=given, wrong=f"there is no state {unknown[0]!r}")
    outcome = given.get("outcome")
    if outcome is not None and outcome not in OUTCOMES:
        return Choice(given=given, wrong=f"no attempt ends as {outcome!r}")
    try:
        since_ms(given.get("since"), 0)
    except ConfigError as error:
        return Choice(states=states, given=given, wrong=str(error))
    return Choice(states=states, given=given)


def since_ms(text: str | None, now_ms: int) -> int | None:
    """Read the start of a span: so long ago (``2h``).

    Raises:
        ConfigError: it is none.
    """
    if text is None:
        return None
    return max(0, now_ms - round(duration_s(text, "since") * 1000))


def filter_of(choice: Choice, store: Store, now_ms: int) -> Filter:
    """Return the filter that a choice means; one that is wrong means no job."""
    given = choice.given
    if choice.wrong:
        return Filter(ids=())
    flow = given.get("flow")
    stored = {
        JobState.PENDING if s == RETRYABLE else JobState(s) for s in choice.states
    }
    return Filter(
        states=tuple(sorted(stored)) or None,
        kind=given.get("kind"),
        pool=given.get("pool"),
        tenant=given.get("tenant"),
        key=given.get("key"),
        flow=None if flow is None else (store.flow_id_of(flow) or 0),
        since_ms=since_ms(given.get("since"), now_ms),
        outcome=Outcome(given["outcome"]) if "outcome" in given else None,
        error_class=given.get("error_class"),
        text=given.get("text"),
    )


def spot_of(text: str | None, store: Store) -> Spot | None:
    """Return where a page begins, as `spot_text` has written it; None: at the start."""
    at_text, _, ref = (text or "").partition(".")
    job_id = store.id_of(ref) if ref else None
    if job_id is None or not at_text.isascii() or not at_text.isdigit():
        return None
    return Spot(min(int(at_text[:18]), TIME_MAX_MS), job_id)


def spot_text(spot: Spot, store: Store) -> str:
    """Return a spot for a URL: by the job's ref, as everything there."""
    return f"{spot.at_ms}.{store.ref_of(spot.id)}"


def words_of(choice: Choice) -> str:
    """Return a choice in words: ``dead jobs of kind pdf.render``."""
    states = " or ".join(choice.states)
    parts: Sequence[Any] = [
        f"{states} jobs" if states else "jobs",
        *(
            f"{said} {value.replace('_', ' ') if name == 'outcome' else value}"
            for name, said in _SAID.items()
            if (value := choice.given.get(name)) is not None
        ),
    ]
    return " ".join(parts)


_SAID = {
    "kind": "of kind",
    "pool": "in pool",
    "tenant": "of tenant",
    "key": "with the key",
    "flow": "of flow",
    "outcome": "whose last attempt ended as",
    "error_class": "with the error",
    "text": "with the text",
    "since": "since",
}
