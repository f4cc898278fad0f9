"""When what is wrong becomes an incident, and when that is over.

A rule judges a subject at each look: wrong, well, or in between, which changes nothing.
An incident opens once it was wrong for long enough, and ends once all was well for long
enough, so that what swings to and fro is one incident.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from jobpool.monitoring.alerts.catalogue import RULES
from jobpool.monitoring.alerts.notes import Signal, SignalState

Subject = tuple[str, str]
"""A rule's name, and what it is about."""
GAP_S = 300.0
"""Nobody has looked for longer: what was rising or falling begins anew."""


class Judgement(StrEnum):
    """What a rule says of a subject."""

    WRONG = "wrong"
    BETWEEN = "in between"
    WELL = "well"


class Verdict(NamedTuple):
    """A judgement with its reason."""

    judgement: Judgement
    summary: str
    """A sentence."""
    for_s: float | None = None
    """How long it must be wrong; None: as the rule has it."""


_S, _J = SignalState, Judgement
MOVES: Mapping[SignalState, Mapping[Judgement, SignalState]] = {
    _S.QUIET: {_J.WRONG: _S.RISING, _J.BETWEEN: _S.QUIET, _J.WELL: _S.QUIET},
    _S.RISING: {_J.WRONG: _S.RISING, _J.BETWEEN: _S.QUIET, _J.WELL: _S.QUIET},
    _S.OPEN: {_J.WRONG: _S.OPEN, _J.BETWEEN: _S.OPEN, _J.WELL: _S.FALLING},
    _S.FALLING: {_J.WRONG: _S.OPEN, _J.BETWEEN: _S.OPEN, _J.WELL: _S.FALLING},
}
"""What follows from a judgement; what has risen or fallen for long enough goes on."""
ON: Mapping[SignalState, SignalState] = {
    _S.RISING: _S.OPEN,
    _S.FALLING: _S.QUIET,
}
"""Where these states lead in the end."""
_WELL = Verdict(Judgement.WELL, "")


class Changes(NamedTuple):
    """What one look has changed."""

    signals: tuple[Signal, ...]
    """Those that are not quiet."""
    opened: tuple[Subject, ...]
    ended: tuple[Subject, ...]


def changes(
    before: Iterable[Signal],
    verdicts: Mapping[Subject, Verdict],
    now_ms: int,
    *,
    passed_s: float,
) -> Changes:
    """Return what follows.

    Args:
        before: the signals of the last look that were not quiet.
        verdicts: of this look; what no rule speaks of any more is well.
        now_ms: when it was.
        passed_s: since the last one.
    """
    known = {(one.rule, one.subject): one for one in before}
    left: list[Signal] = []
    opened: list[Subject] = []
    ended: list[Subject] = []
    for subject in dict.fromkeys((*known, *verdicts)):
        rule, verdict = RULES.get(subject[0]), verdicts.get(subject, _WELL)
        former = known.get(subject) or Signal(*subject, SignalState.QUIET, now_ms)
        state = MOVES[former.state][verdict.judgement]
        stays = state is former.state and passed_s <= GAP_S
        since_ms = former.since_ms if stays else now_ms
        for_s = calm_s = 0.0
        if rule is not None:
            for_s = rule.for_s if verdict.for_s is None else verdict.for_s
            calm_s = rule.calm_s
        long_s = for_s if state is SignalState.RISING else calm_s
        if state in ON and now_ms - since_ms >= long_s * 1000:
            (opened if ON[state] is SignalState.OPEN else ended).append(subject)
            state, since_ms = ON[state], now_ms
        if state is not SignalState.QUIET:
            left.append(Signal(*subject, state, since_ms))
    return Changes(tuple(left), tuple(opened), tuple(ended))
