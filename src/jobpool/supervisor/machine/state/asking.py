"""The states of a request for a permit, and what each event does to it: a table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from jobpool.supervisor.machine.state.slot import IGNORE


class AskState(StrEnum):
    """The state of a request for a permit."""

    ASKED = "asked"
    """It is with the store."""
    WAITING = "waiting"
    """It was refused and will be made again."""
    GIVEN_UP = "given_up"
    """It is with the store, and the child does not wait any more."""
    HELD = "held"
    """It was granted."""


class AskEvent(StrEnum):
    """What can happen to a request for a permit."""

    GRANTED = "granted"
    REFUSED = "refused"
    """Not now; also if the store has not answered."""
    NEVER = "never"
    """It cannot be granted at all."""
    DUE = "due"
    """It is time to ask again."""
    OVER = "over"
    """The child has waited for as long as it wants to."""
    RETURNED = "returned"
    """The child does not need it any more."""


_S, _E = AskState, AskEvent
IMPOSSIBLE = "impossible"
PERMIT_ACTIONS: Mapping[AskState, Mapping[AskEvent, str]] = {
    _S.ASKED: {
        _E.GRANTED: "grant",
        _E.REFUSED: "wait",
        _E.NEVER: "refuse",
        _E.DUE: IMPOSSIBLE,
        _E.OVER: "refuse_and_give_up",
        _E.RETURNED: "give_up",
    },
    _S.WAITING: {
        _E.GRANTED: IMPOSSIBLE,
        _E.REFUSED: IMPOSSIBLE,
        _E.NEVER: IMPOSSIBLE,
        _E.DUE: "ask_again",
        _E.OVER: "refuse",
        _E.RETURNED: "forget",
    },
    _S.GIVEN_UP: {
        _E.GRANTED: "give_back",
        _E.REFUSED: "forget",
        _E.NEVER: "forget",
        _E.DUE: IMPOSSIBLE,
        _E.OVER: IMPOSSIBLE,
        _E.RETURNED: IGNORE,
    },
    _S.HELD: {
        _E.GRANTED: IMPOSSIBLE,
        _E.REFUSED: IMPOSSIBLE,
        _E.NEVER: IMPOSSIBLE,
        _E.DUE: IMPOSSIBLE,
        _E.OVER: IMPOSSIBLE,
        _E.RETURNED: "give_back",
    },
}
