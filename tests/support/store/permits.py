"""What must hold of quotas in every run, as `invariants` counts it.

Theory of operation. A permit that came with a lease counts from when its attempt really
began, and one that was asked for from when the handler learned of it. Of a cap, it
counts until its handler has returned it, or until nothing of its attempt lives and the
end is stored. The cap is the one that held when the last of those that hold was
granted: all of them were leased by then. Of a rate, each begin counts once; what was
asked for counts from its grant, if its handler learns of it soon.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from support.store.history import (
    Blocked,
    Disturbed,
    Downstream,
    Ended,
    Held,
    History,
    Idled,
    Record,
    Refilled,
    Returned,
    Rushed,
    Settled,
    Started,
    Took,
)

PICK_UP_S = 2.5
"""With a permit and a slot a job begins by then: a wake-up may be lost, a poll not."""
HEARD_S = 2.0
"""After a bucket was blocked nothing of it begins later than that."""
GRAIN = 1e-6
CLOCK_S = 0.002
"""The store counts whole milliseconds, and rounds."""
FRESH_S = 0.6
"""What a handler has asked for counts from its grant if it learns of it so soon."""
SILENCE_S = 5.0
"""So long a probe that has ended may still be heard of."""
HOST = "host:"
"""Begins the buckets that each supervisor counts alone."""


class Finding(NamedTuple):
    """What is wrong."""

    rule: str
    job: int
    text: str
    token: int = 0


def wrong_permits(history: History) -> Iterator[Finding]:
    """Yield every broken promise about quotas."""
    for text in history.permits_left:
        yield Finding("I24", 0, text)
    for rushed in history.of(Rushed):
        yield Finding("I27", rushed.job, rushed.text, rushed.token)
    for idled in history.of(Idled):
        if idled.seconds > PICK_UP_S:
            text = f"had its permits and a slot for {idled.seconds:.1f} s, and waited"
            yield Finding("I23", idled.job, text)
    if any(type(record) is Took for record in history.records):
        yield from _overfull(history)
        yield from _too_fast(history)
        yield from _unheard(history)
        yield from _unprobed(history)


class _Holders:
    """Who holds permits of caps at one moment."""

    def __init__(self, *, excused: bool) -> None:
        self._excused = excused
        self._taken: defaultdict[tuple[int, int], list[tuple[int, Took]]] = defaultdict(
            list
        )
        self._grants = 0
        self._in: defaultdict[str, dict[tuple[int, int], tuple[int, Took]]] = (
            defaultdict(dict)
        )
        self._ended: set[int] = set()
        self._settled: set[int] = set()

    def see(self, record: Record) -> Iterator[Finding]:
        """Take in what happens next."""
        match record:
            case Took():
                self._grants += 1
                key = record.token, record.n
                self._taken[key].append((self._grants, record))
            case Started():
                yield from self._enter(record.token, 0)
            case Held():
                yield from self._enter(record.token, record.n)
            case Returned():
                self._leave(record.token, record.n)
            case Ended():
                self._ended.add(record.token)
                for _, took in self._taken[record.token, 0]:
                    if took.bucket.startswith(HOST):
                        self._in[took.bucket].pop((record.token, 0), None)
                self._over(record.token)
            case Settled() if record.receipt == "accepted":
                # A completion is an end that its supervisor need not have seen yet.
                self._settled.add(record.token)
                if self._excused and record.presumed:
                    self._ended.add(record.token)
                self._over(record.token)

    def _enter(self, token: int, n: int) -> Iterator[Finding]:
        for order, took in self._taken[token, n]:
            holders = self._in[took.bucket]
            holders[token, n] = order, took
            _, last = max(holders.values(), key=lambda one: one[0])
            used = sum(one.cost for _, one in holders.values())
            if last.cap is not None and used > last.cap:
                tokens = sorted(token for token, _ in holders)
                text = f"{used} of {took.bucket} are used by {tokens}, of {last.cap}"
                yield Finding("I20", took.job, text, token)

    def _leave(self, token: int, n: int) -> None:
        for _, took in self._taken[token, n]:
            self._in[took.bucket].pop((token, n), None)

    def _over(self, token: int) -> None:
        if token in self._ended and token in self._settled:
            for holders in self._in.values():
                for key in [key for key in holders if key[0] == token]:
                    del holders[key]


def _overfull(history: History) -> Iterator[Finding]:
    """I20: no cap is exceeded at any moment; nothing paused is granted."""
    holders = _Holders(excused=history.excused)
    for record in history.records:
        yield from holders.see(record)
        if type(record) is Took and record.closed:
            text = f"{record.bucket} was granted, and is paused"
            yield Finding("I20", record.job, text, record.token)


def _begins(history: History) -> Iterator[tuple[Record, list[Took]]]:
    """Yield, in order, each record; with a begin, the permits that it uses."""
    taken: defaultdict[tuple[int, int], list[Took]] = defaultdict(list)
    for record in history.records:
        used: list[Took] = []
        if type(record) is Took:
            if record.n:  # what went back unused is not used
                taken[record.token, record.n].clear()
            taken[record.token, record.n].append(record)
        elif type(record) is Started:
            used = taken[record.token, 0]
        elif type(record) is Held:
            used = taken[record.token, record.n]
        yield record, used


def _too_fast(history: History) -> Iterator[Finding]:
    """I21: no window of begins has more than the rate and the burst allow."""
    level: dict[str, tuple[float, float, tuple[float, int]]] = {}
    for at_s, one in sorted(_counted(history), key=lambda found: found[0]):
        if type(one) is Refilled:
            for bucket in [b for b in level if _is_of(b, one.quota)]:
                del level[bucket]
        elif type(one) is Took and one.per_s is not None and one.burst is not None:
            full, numbers = float(one.burst), (one.per_s, one.burst)
            left, since_s, before = level.get(one.bucket, (full, at_s, numbers))
            if before != numbers:
                left = full
            left = min(full, left + (at_s - since_s) * one.per_s) - one.cost
            if left < -GRAIN:
                text = (
                    f"{one.bucket} begins at {at_s:.3f} s, {-left:.3f} permits over "
                    f"{one.per_s:g}/s and {one.burst}"
                )
                yield Finding("I21", one.job, text, one.token)
            level[one.bucket] = max(left, 0.0), at_s, numbers


def _counted(history: History) -> Iterator[tuple[float, Took | Refilled]]:
    """Yield what a rate counts, with its time.

    What a host carries through its sleep begins whenever it wakes up.
    """
    asleep = [one for one in history.of(Disturbed) if one.where.startswith("host")]
    hosts = {record.token: record.host for record in history.of(Started)}
    for record, used in _begins(history):
        if type(record) is Refilled:
            yield record.at_s, record
        for took in used:
            if not any(
                one.where == hosts.get(took.token)
                and one.at_s <= record.at_s
                and one.until_s >= took.at_s
                for one in asleep
            ):
                is_fresh = took.n > 0 and record.at_s - took.at_s <= FRESH_S
                yield took.at_s if is_fresh else record.at_s, took


class _Blocks:
    """What services have said to wait for."""

    def __init__(self, history: History) -> None:
        self._asleep = [d for d in history.of(Disturbed) if d.where.startswith("host")]
        self._of: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)

    def refill(self, quota: str) -> None:
        """Forget blocks."""
        for bucket in [one for one in self._of if _is_of(one, quota)]:
            del self._of[bucket]

    def add(self, record: Blocked) -> None:
        """Remember one."""
        until_s = record.at_s + record.after_s
        self._of[record.bucket].append((record.at_s, until_s))

    def granted(self, took: Took) -> bool:
        """Say whether something was granted in spite of one."""
        return any(
            took.at_s < until_s - CLOCK_S for _, until_s in self._of[took.bucket]
        )

    def begun(self, took: Took, begun_s: float) -> Iterator[float]:
        """Yield how long before it began it should have heard of one."""
        for at_s, until_s in self._of[took.bucket]:
            is_late = took.at_s <= at_s and at_s + HEARD_S < begun_s < until_s
            if is_late and not any(
                one.at_s <= begun_s and one.until_s >= at_s for one in self._asleep
            ):
                yield begun_s - at_s


def _unheard(history: History) -> Iterator[Finding]:
    """I22: of what a service has said to wait for nothing begins meanwhile."""
    blocks = _Blocks(history)
    for record, used in _begins(history):
        match record:
            case Refilled():
                blocks.refill(record.quota)
            case Blocked():
                blocks.add(record)
            case Took() if blocks.granted(record):
                text = f"{record.bucket} was granted, and is blocked"
                yield Finding("I22", record.job, text, record.token)
        for took in used:
            for late_s in blocks.begun(took, record.at_s):
                text = f"{took.bucket} begins {late_s:.1f} s after it was blocked"
                yield Finding("I22", took.job, text, took.token)


def _unprobed(history: History) -> Iterator[Finding]:  # noqa: C901 - a case each
    """I22: of an open breaker nothing is granted, and then one probe at a time.

    Another is granted a while after the attempt or the permit of the first has ended
    and nothing was heard of it.
    """
    opened: dict[str, tuple[float, Took | None]] = {}
    ended: dict[tuple[int, int], float] = {}
    for record in history.records:
        match record:
            case Downstream(pause_s=None):
                opened.pop(record.bucket, None)
            case Downstream(pause_s=float(pause_s)):
                opened[record.bucket] = record.at_s + pause_s, None
            case Refilled():
                for bucket in [one for one in opened if _is_of(one, record.quota)]:
                    del opened[bucket]
            case Returned():
                ended.setdefault((record.token, record.n), record.at_s)
            case Settled():
                ended.setdefault((record.token, 0), record.at_s)
            case Took() if (found := opened.get(record.bucket)) is not None:
                until_s, probe = found
                if record.at_s < until_s - CLOCK_S:
                    text = f"{record.bucket} was granted, and its breaker is open"
                    yield Finding("I22", record.job, text, record.token)
                if probe is not None and record.at_s < SILENCE_S - CLOCK_S + min(
                    ended.get((probe.token, probe.n), inf),
                    ended.get((probe.token, 0), inf),
                ):
                    text = f"{record.bucket} is probed twice, also by {probe.token}"
                    yield Finding("I22", record.job, text, record.token)
                opened[record.bucket] = until_s, record


def _is_of(bucket: str, quota: str) -> bool:
    return not quota or bucket.partition("=")[0] == quota
