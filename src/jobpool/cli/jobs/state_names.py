"""States as operators name them: jobpool's own words, and those of other queues.

A word that means one state is taken for it; one that may mean several is answered with
those, because what is done to many jobs must not rest on a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from jobpool.core.jobs.job import JobState
from jobpool.words.jobs.states import MEANINGS, RETRYABLE

_ENDS = (JobState.SUCCEEDED, JobState.DEAD, JobState.QUARANTINED, JobState.CANCELED)
_FAILURES = (JobState.DEAD, JobState.QUARANTINED, RETRYABLE)
_MEANT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("scheduled delayed deferred", (JobState.PENDING,)),
    ("queued enqueued ready due available todo", (JobState.RUNNABLE,)),
    ("running active started executing processing in_progress", (JobState.LEASED,)),
    ("done completed complete success successful", (JobState.SUCCEEDED,)),
    ("retry retrying", (RETRYABLE,)),
    ("discarded exhausted dead_letter dlq", (JobState.DEAD,)),
    ("quarantine poison", (JobState.QUARANTINED,)),
    ("cancelled aborted revoked expired", (JobState.CANCELED,)),
    ("failed failure error errored", _FAILURES),
    ("finished ended", _ENDS),
)
WORDS: Mapping[str, tuple[str, ...]] = {
    word: states for words, states in _MEANT for word in words.split()
}


class StateChoice(click.Choice[str]):
    """A state, in whichever word the operator knows it by."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the state's own name.

        Raises:
            click.BadParameter: the word means none of the choices, or several.
        """
        word = str(value).strip().lower().replace("-", "_")
        meant = [one for one in WORDS.get(word, (word,)) if one in self.choices]
        if len(meant) == 1:
            return meant[0]
        if not meant:
            return super().convert(value, param, ctx)
        choices = ", ".join(f"{state} ({MEANINGS[state]})" for state in meant)
        return self.fail(
            f"{word!r} may mean {choices}; name one, or repeat --state for several",
            param,
            ctx,
        )
