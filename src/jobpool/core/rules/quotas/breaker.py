"""Breakers of downstreams: a quota's service that fails too often is left alone.

`TRANSITIONS` is total over states and events. Closed, requests are counted. Open, none
begins until a pause is over. Then it is probing: one request in all may begin, and its
answer decides. Each failed probe doubles the pause.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from jobpool.core.rules.quotas.window import Window
from jobpool.core.units import duration_s, show_duration
from jobpool.errors import ConfigError

PAUSE_FACTOR_MAX = 10
"""A pause is at most so many times the first one."""
REQUESTS_MAX = 1_000_000
TIME_MIN_S, TIME_MAX_S = 1.0, 86_400.0
"""Of a window and a pause."""
AHEAD_MS = 60_000
"""By so much transactions that waited for one another may differ in their time."""
SILENCE_MS = 5_000
"""A probe whose attempt has ended may be heard of so much later: what supervisors
report, they report once a second."""


class BreakerRule(msgspec.Struct, frozen=True, kw_only=True):
    """When a quota's service is taken to be down."""

    failures: float = 0.5
    """The share of requests that must have failed: above 0, at most 1."""
    window_s: float = 60.0
    """Over so many last seconds."""
    requests: int = 20
    """Of fewer requests in that time, no share says anything."""
    pause_s: float = 30.0
    """How long nothing begins, before a probe does."""


def check_breaker(rule: BreakerRule, what: str) -> BreakerRule:
    """Return a rule that can be kept.

    Raises:
        ConfigError: a number is out of range.
    """
    if not 0 < rule.failures <= 1:
        raise ConfigError(
            f"{what}: failures={rule.failures:g} is out of range; expected a share "
            "above 0 and at most 1, such as 0.5 for half of the requests"
        )
    if not 1 <= rule.requests <= REQUESTS_MAX:
        raise ConfigError(
            f"{what}: requests={rule.requests} is out of range; expected 1 to "
            f"{REQUESTS_MAX:,}"
        )
    for name, seconds in (("window", rule.window_s), ("pause", rule.pause_s)):
        if not TIME_MIN_S <= seconds <= TIME_MAX_S:
            raise ConfigError(
                f"{what}: {name}={show_duration(seconds)} is out of range; expected "
                f"{show_duration(TIME_MIN_S)} to {show_duration(TIME_MAX_S)}"
            )
    return rule


def parse_breaker(value: object, what: str = "breaker") -> BreakerRule:
    """Read ``{"failures": 0.5, "window": "1m", "requests": 20, "pause": "30s"}``.

    What is left out is as in this example.

    Raises:
        ConfigError: it is no such table, or a value is wrong.
    """
    known = {"failures": "failures", "requests": "requests"}
    known |= {"window": "window_s", "pause": "pause_s"}
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{what}: expected a table such as {_EXAMPLE}, got {type(value).__name__}"
        )
    given: dict[str, Any] = {}
    for key, one in value.items():
        if key not in known:
            raise ConfigError(
                f"{what}: {str(key)[:40]!r} is unknown; expected {', '.join(known)}, "
                f"as in {_EXAMPLE}"
            )
        if key in _TIMES:
            given[known[key]] = duration_s(one, f"{what}: {key}")
        else:
            given[key] = _number(one, f"{what}: {key}", whole=key == "requests")
    return check_breaker(BreakerRule(**given), what)


_TIMES = frozenset({"window", "pause"})
_EXAMPLE = '{"failures": 0.5, "window": "1m", "requests": 20, "pause": "30s"}'


def show_breaker(rule: BreakerRule) -> str:
    """Format a rule as a person reads it."""
    return (
        f"{100 * rule.failures:.3g} % of {rule.requests} requests in "
        f"{show_duration(rule.window_s)} for {show_duration(rule.pause_s)}"
    )


def _number(value: object, what: str, *, whole: bool) -> float:
    types = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, types):
        wanted = "a whole number" if whole else "a number"
        raise ConfigError(f"{what}: expected {wanted}, got {str(value)[:40]!r}")
    return value


class BreakerState(StrEnum):
    """What a breaker lets through."""

    CLOSED = "closed"
    """Everything."""
    OPEN = "open"
    """Nothing, until its pause is over."""
    PROBING = "probing"
    """One probe, or nothing while that has no answer."""


class BreakerEvent(StrEnum):
    """What can happen to a breaker."""

    GOOD = "good"
    """Requests were answered; the share of failures is low."""
    BAD = "bad"
    """Requests were answered; the share of failures is high, of enough of them."""
    PAUSE_ENDS = "pause_ends"
    PROBE_ANSWERED = "probe_answered"
    PROBE_FAILED = "probe_failed"
    PROBE_LOST = "probe_lost"
    """Its attempt has ended, and nothing was heard."""
    RESET = "reset"
    """By an operator."""


_S, _E = BreakerState, BreakerEvent
TRANSITIONS: Mapping[BreakerState, Mapping[BreakerEvent, BreakerState]] = {
    _S.CLOSED: {**dict.fromkeys(_E, _S.CLOSED), _E.BAD: _S.OPEN},
    # Answers of requests that began before it was open say nothing new.
    _S.OPEN: {
        **dict.fromkeys(_E, _S.OPEN),
        _E.PAUSE_ENDS: _S.PROBING,
        _E.RESET: _S.CLOSED,
    },
    _S.PROBING: {
        **dict.fromkeys(_E, _S.PROBING),
        _E.PROBE_ANSWERED: _S.CLOSED,
        _E.PROBE_FAILED: _S.OPEN,
        _E.RESET: _S.CLOSED,
    },
}


class Probe(NamedTuple):
    """The attempt whose request says whether a service is back."""

    token: int
    job_id: int


class Breaker(msgspec.Struct, frozen=True, omit_defaults=True):
    """A bucket's breaker, as it is stored."""

    state: BreakerState = BreakerState.CLOSED
    until_ms: int = 0
    """When its pause ends, if it is open; else, if a probe's attempt has ended, when it
    is no longer waited for; 0: it has not."""
    since_ms: int = 0
    """When `until_ms` was set. If that is far to come, the clock was ahead then, and
    has been set back: nobody waits for it."""
    opened: int = 0
    """How often in a row it has opened; the pause grows with it."""
    probe: Probe | None = None
    window: Window = Window()
    """Requests, and those of them that have failed."""

    def at(self, now_ms: int) -> Breaker:
        """Return it as it is now: a pause may be over, or a probe lost."""
        if self.state is BreakerState.CLOSED or not self._is_over(now_ms):
            return self
        is_open = self.state is BreakerState.OPEN
        event = BreakerEvent.PAUSE_ENDS if is_open else BreakerEvent.PROBE_LOST
        state = TRANSITIONS[self.state][event]
        return _replace(self, state=state, until_ms=0, since_ms=0, probe=None)

    def _is_over(self, now_ms: int) -> bool:
        is_timed = self.state is BreakerState.OPEN or bool(self.until_ms)
        was_ahead = self.since_ms - now_ms > AHEAD_MS
        return is_timed and (was_ahead or self.until_ms <= now_ms)

    @property
    def is_open(self) -> bool:
        """Whether nothing may begin, before a time; see `at`."""
        return self.state is BreakerState.OPEN

    @property
    def is_probed(self) -> bool:
        """Whether a probe is on its way: nothing else may begin."""
        return self.state is BreakerState.PROBING and self.probe is not None

    @property
    def wants_probe(self) -> bool:
        """Whether one request may begin, as its probe."""
        return self.state is BreakerState.PROBING and self.probe is None

    def is_idle(self, rule: BreakerRule | None, now_ms: int) -> bool:
        """Return whether nothing of it says anything any more."""
        is_closed = self.state is BreakerState.CLOSED
        return rule is None or (
            is_closed and not any(self.window.sums(now_ms, rule.window_s))
        )

    def probed_by(self, probe: Probe) -> Breaker:
        """Return it with a probe, as it is once its pause is over."""
        return _replace(
            self, state=BreakerState.PROBING, probe=probe, until_ms=0, since_ms=0
        )

    def missed(self, now_ms: int) -> Breaker:
        """Return it after its probe's attempt was found to have ended.

        Its answer may still be on the way: another probe is let only after a while.
        """
        if not self.is_probed or self.until_ms:
            return self
        return _replace(self, until_ms=now_ms + SILENCE_MS, since_ms=now_ms)


_replace = msgspec.structs.replace


class BreakerChange(NamedTuple):
    """The breaker of a bucket has opened, or was closed."""

    quota: str
    value: str
    state: BreakerState
    requests: int
    """In the window, or the probe's."""
    failures: int
    until_ms: int = 0
    """When its pause ends, if it is open."""


class Change(NamedTuple):
    """A breaker after a report, and what was counted for it."""

    breaker: Breaker
    requests: int
    failures: int


def reported(
    breaker: Breaker,
    rule: BreakerRule,
    counts: Mapping[int, tuple[int, int]],
    now_ms: int,
) -> Change:
    """Return a breaker after requests were answered.

    Args:
        breaker: as it was.
        rule: the quota's.
        counts: requests and failures, by the token of the attempt that made them.
        now_ms: the store's clock.
    """
    now = breaker.at(now_ms)
    if now.state is not BreakerState.CLOSED:
        token = now.probe.token if now.probe is not None else None
        requests, failures = (0, 0) if token is None else counts.get(token, (0, 0))
        if not requests:
            return Change(now, 0, 0)
        has_failed = failures >= rule.failures * requests
        event = BreakerEvent.PROBE_FAILED if has_failed else BreakerEvent.PROBE_ANSWERED
        return Change(_after(now, rule, event, now_ms), requests, failures)
    requests = sum(one for one, _ in counts.values())
    failures = sum(one for _, one in counts.values())
    window = now.window.add(now_ms, rule.window_s, requests, failures)
    now = _replace(now, window=window)
    requests, failures = window.sums(now_ms, rule.window_s)
    is_bad = requests >= rule.requests and failures >= rule.failures * requests
    event = BreakerEvent.BAD if is_bad else BreakerEvent.GOOD
    return Change(_after(now, rule, event, now_ms), requests, failures)


def _after(
    breaker: Breaker, rule: BreakerRule, event: BreakerEvent, now_ms: int
) -> Breaker:
    following = TRANSITIONS[breaker.state][event]
    if following is breaker.state:
        return breaker
    if following is BreakerState.CLOSED:
        return Breaker()
    pause_s = rule.pause_s * min(2.0**breaker.opened, PAUSE_FACTOR_MAX)
    return Breaker(
        state=following,
        until_ms=now_ms + round(pause_s * 1000),
        since_ms=now_ms,
        opened=min(breaker.opened + 1, 30),
    )
