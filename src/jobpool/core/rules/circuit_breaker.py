"""Circuit breakers: a kind whose jobs crash in a row is slowed, then held.

After ``breaker_after`` different jobs of a kind have crashed with no success between,
its jobs begin one at a time, with growing pauses (*slowed*). After `OPEN_FACTOR` times
as many the breaker is *open*: jobs wait, uncharged, except for a single probe after
each of ever longer pauses. A success closes the breaker, and so does an operator. Other
kinds are not affected. What a crash costs its own job is up to `lifecycle`.

`NEXT` is total over states and events; None marks what must not happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from jobpool.errors import JobpoolBug

SLOW_AFTER = 5
"""Different jobs in a row that crashed."""
OPEN_FACTOR = 4
SLOW_FIRST_S, SLOW_LAST_S = 1.0, 60.0
OPEN_FIRST_S, OPEN_LAST_S = 300.0, 3600.0
_JOBS_MAX = 1000
"""Most job ids remembered, so that one job does not count twice."""


class BreakerState(StrEnum):
    """State of a kind's breaker."""

    CLOSED = "closed"
    """Normal: its jobs begin as they come."""
    SLOWED = "slowed"
    """Its next job begins after a pause."""
    TRYING = "trying"
    """Slowed, and one job runs."""
    OPEN = "open"
    """Its jobs wait; a probe begins after a long pause."""
    PROBING = "probing"
    """Open, and the probe runs."""


class BreakerEvent(StrEnum):
    """What can happen to a breaker."""

    CRASH = "crash"
    WORSE = "worse"
    """A crash with which the next threshold is reached or passed."""
    STRAY = "stray"
    """A crash of a job that had begun earlier, while another one is being tried."""
    STRAY_WORSE = "stray_worse"
    SUCCEED = "succeed"
    END = "end"
    """The job being tried ended in another way, which proves nothing."""
    START = "start"
    RESUME = "resume"
    """An operator, or another supervisor, has closed it."""


_S, _E = BreakerState, BreakerEvent
_CLOSING = {_E.SUCCEED: _S.CLOSED, _E.RESUME: _S.CLOSED}
NEXT: Mapping[BreakerState, Mapping[BreakerEvent, BreakerState | None]] = {
    _S.CLOSED: {
        **_CLOSING,
        _E.CRASH: _S.CLOSED,
        _E.WORSE: _S.SLOWED,
        _E.STRAY: None,
        _E.STRAY_WORSE: None,
        _E.END: _S.CLOSED,
        _E.START: _S.CLOSED,
    },
    _S.SLOWED: {
        **_CLOSING,
        _E.CRASH: _S.SLOWED,
        _E.WORSE: _S.OPEN,
        _E.STRAY: None,
        _E.STRAY_WORSE: None,
        _E.END: _S.SLOWED,
        _E.START: _S.TRYING,
    },
    _S.TRYING: {
        **_CLOSING,
        _E.CRASH: _S.SLOWED,
        _E.WORSE: _S.OPEN,
        _E.STRAY: _S.TRYING,
        _E.STRAY_WORSE: _S.PROBING,
        _E.END: _S.SLOWED,
        _E.START: None,
    },
    _S.OPEN: {
        **_CLOSING,
        _E.CRASH: _S.OPEN,
        _E.WORSE: _S.OPEN,
        _E.STRAY: None,
        _E.STRAY_WORSE: None,
        _E.END: _S.OPEN,
        _E.START: _S.PROBING,
    },
    _S.PROBING: {
        **_CLOSING,
        _E.CRASH: _S.OPEN,
        _E.WORSE: _S.OPEN,
        _E.STRAY: _S.PROBING,
        _E.STRAY_WORSE: _S.PROBING,
        _E.END: _S.OPEN,
        _E.START: None,
    },
}
_AT_REST = {_S.TRYING: _S.SLOWED, _S.PROBING: _S.OPEN}


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker as stored."""

    kind: str
    state: BreakerState
    """``closed``, ``slowed`` or ``open``: no running attempt is stored."""
    crashes: int
    """Different jobs in a row; 0: delete the row."""
    last_job: int
    wait_s: float
    """Until the next job may begin."""


class Breaker:
    """The circuit breaker of one kind.

    Args:
        kind: the kind.
        slow_after: different jobs in a row after which it is slowed.
    """

    def __init__(self, kind: str, slow_after: int) -> None:
        self.kind = kind
        self.slow_after = slow_after
        self.state = BreakerState.CLOSED
        self.crashes = 0
        self.last_job = 0
        self.next_s = 0.0
        """When the next job may begin, unless it is closed."""
        self._jobs: set[int] = set()
        self._probe: int | None = None
        """The token of the attempt being tried."""

    @property
    def open_after(self) -> int:
        """The number of crashes in a row after which it opens."""
        return self.slow_after * OPEN_FACTOR

    def may_begin(self, now_s: float) -> bool:
        """Return whether a job of the kind may begin now."""
        if self.state is BreakerState.CLOSED:
            return True
        return self.state not in _AT_REST and self.next_s <= now_s

    def is_tried(self, token: int) -> bool:
        """Return whether this is the attempt being tried."""
        return self._probe == token

    def begin(self, token: int) -> None:
        """Record that a job begins; call it only if `may_begin`."""
        self._move(BreakerEvent.START)
        if self.state in _AT_REST:
            self._probe = token

    def crash(self, job_id: int, token: int | None, now_s: float) -> None:
        """Record that a job of the kind killed its process or its supervisor.

        Args:
            job_id: which job.
            token: its attempt's; None: it was another supervisor's.
            now_s: monotonic time.
        """
        is_stray = self._probe is not None and self._probe != token
        before = self.crashes
        if job_id not in self._jobs:
            if len(self._jobs) >= _JOBS_MAX:
                self._jobs.clear()
            self._jobs.add(job_id)
            self.crashes += 1
        self.last_job = job_id
        is_closed = self.state is BreakerState.CLOSED
        threshold = self.slow_after if is_closed else self.open_after
        # >=, not ==: the saved count may have passed the threshold already.
        worse = before != self.crashes and self.crashes >= threshold
        if is_stray:
            event = BreakerEvent.STRAY_WORSE if worse else BreakerEvent.STRAY
        else:
            event = BreakerEvent.WORSE if worse else BreakerEvent.CRASH
        self._move(event)
        self.next_s = now_s + self.pause_s()

    def end(self, token: int, now_s: float, *, began: bool) -> None:
        """Record that an attempt ended in a way that proves nothing about the kind.

        Args:
            token: the attempt's.
            now_s: monotonic time.
            began: False: it was handed back, and another may be tried at once.
        """
        if self._probe == token:
            self._move(BreakerEvent.END)
            self.next_s = now_s + (self.pause_s() if began else 0.0)

    def close(self, event: BreakerEvent) -> None:
        """Close it after a success or by an operator; all counts are reset."""
        self._move(event)
        self.crashes = self.last_job = 0
        self._jobs.clear()

    def pause_s(self) -> float:
        """Return how long to wait before the next job is tried."""
        match _AT_REST.get(self.state, self.state):
            case BreakerState.SLOWED:
                doubled = min(self.crashes - self.slow_after, 10)
                return float(min(SLOW_FIRST_S * 2**doubled, SLOW_LAST_S))
            case BreakerState.OPEN:
                doubled = min(self.crashes - self.open_after, 10)
                return float(min(OPEN_FIRST_S * 2**doubled, OPEN_LAST_S))
            case _:
                return 0.0

    def saved(self, now_s: float) -> Saved:
        """Return the breaker as it is to be stored."""
        return Saved(
            kind=self.kind,
            state=_AT_REST.get(self.state, self.state),
            crashes=self.crashes,
            last_job=self.last_job,
            wait_s=max(0.0, self.next_s - now_s),
        )

    def adopt(self, saved: Saved, now_s: float) -> None:
        """Take over the stored state, unless an attempt is being tried here."""
        if self._probe is not None:
            return
        self.state, self.crashes = saved.state, saved.crashes
        self.last_job, self.next_s = saved.last_job, now_s + saved.wait_s
        self._jobs.add(saved.last_job)

    def _move(self, event: BreakerEvent) -> None:
        following = NEXT[self.state][event]
        if following is None:
            raise JobpoolBug(f"breaker {self.kind}: {self.state} met {event}; report")
        self.state = following
        if following not in _AT_REST:
            self._probe = None
