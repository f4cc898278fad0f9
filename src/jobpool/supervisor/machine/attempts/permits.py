"""Permits that running handlers ask for, one for each request that they make.

Theory of operation. A child asks and waits. The store grants a permit or refuses it
(`Store.take_permits`); of a refused one it may say when to ask again. Here the request
waits meanwhile, no longer than the handler does, and is made again: at that moment,
after a permit of the same bucket has come back from here, or after `CAP_AGAIN_S`, since
a cap may become free anywhere. One that cannot be granted in time is refused at once:
its job is snoozed, and another can have the slot. A rate counts a permit when it is
granted; if the answer is lost or comes late, it goes back unused and another is asked
for: else all that were granted during an outage would be used at its end.

`PERMIT_ACTIONS` is total over the states of a request and what can happen to it. What
an attempt holds at its end is taken back by the store with its settlement, and
forgotten here. The quotas that each supervisor counts alone are not asked of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from jobpool.core.jobs.job import PermitAnswer, PermitAsk, PermitReturn, Throttle
from jobpool.core.rules.quotas.definition import (
    DEFAULT_THROTTLE_MAX_S,
    DEFAULT_WAIT_S,
)
from jobpool.core.rules.quotas.gcra import DELAY_MAX_S
from jobpool.errors import JobpoolBug
from jobpool.sandbox.protocol.messages import (
    AskPermit,
    BlockBucket,
    PermitAnswered,
    RequestEnded,
    ReturnPermit,
)
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.deadlines import waits_until
from jobpool.supervisor.machine.attempts.killing import Killing
from jobpool.supervisor.machine.attempts.requests import Requests
from jobpool.supervisor.machine.state.asking import (
    IMPOSSIBLE,
    PERMIT_ACTIONS,
    AskEvent,
    AskState,
)
from jobpool.supervisor.machine.state.places import Places
from jobpool.supervisor.machine.state.slot import (
    IGNORE,
    NEVER_S,
    Assigned,
    Slot,
    SlotState,
)
from jobpool.supervisor.machine.state.step import Step

CAP_AGAIN_S = 0.05
"""A request whose moment nobody knows is made again so soon."""
ANSWER_S = DELAY_MAX_S
"""The store may take so long for its first answer, however short a handler's wait is:
else whoever does not want to wait would get none, even if all are free."""
PERMITS_MAX = 2000
"""Most requests and permits of one attempt here: its child keeps to half of it, but
those that it has given up may still be with the store."""
RETRY_MAX_S = 86400.0
"""A job that comes back to ask again does so within a day: much may change."""
BLOCKS_FREE = 100
BLOCKS_PER_S = 10.0
"""An attempt may block buckets so often; what it says beyond is ignored."""


_S = AskState


@dataclass(slots=True)
class _Asked:
    """A request, or the permit that came of it."""

    ask: PermitAsk
    slot: Slot
    until_s: float
    """When the child stops waiting for a permit to be free."""
    answer_until_s: float
    """When it stops waiting for an answer; after the first one, that is the same."""
    state: AskState = AskState.ASKED
    next_s: float = NEVER_S
    """When it is made again, if it waits."""
    retry_in_s: float | None = None
    """What the store has said last."""

    sent_s: float = 0.0
    """When it was made last, by the clock that goes on while the host sleeps."""
    in_doubt: bool = False
    """A permit may be there that is not used."""

    @property
    def bucket(self) -> tuple[str, str]:
        """What it is a permit of."""
        return self.ask.quota, self.ask.value

    @property
    def ends_s(self) -> float:
        """When its child stops waiting for what it is waiting for now."""
        if self.state is AskState.ASKED:
            return self.answer_until_s
        return self.until_s if self.state is AskState.WAITING else NEVER_S


@dataclass(slots=True)
class _Attempt:
    """What the attempt that runs in a slot has asked for."""

    token: int
    asked: dict[int, _Asked] = field(default_factory=dict)
    blocks: int = 0


class Permits:
    """The action of the slot table for permits, and what waits for them.

    Args:
        step: shared by all parts of the machine.
        killing: ends a child that breaks the protocol.
        places: what is counted here alone.
    """

    def __init__(self, step: Step, killing: Killing, places: Places) -> None:
        self._step = step
        self._killing = killing
        self._places = places
        self._requests = Requests(step)
        self._attempts: dict[int, _Attempt] = {}
        """By slot: the last attempt there that has asked for anything."""
        self._asks: list[PermitAsk] = []
        self._returns: list[PermitReturn] = []
        self._actions: Mapping[str, Callable[[_Asked], None]] = {
            "grant": self._grant,
            "wait": self._wait,
            "refuse": self._refuse,
            "refuse_and_give_up": self._refuse_and_give_up,
            "give_up": self._give_up,
            "ask_again": self._send,
            "forget": self._forget,
            "give_back": self._give_back,
        }

    def permit(self, slot: Slot, frame: object) -> None:
        """The handler asks for a permit, returns one, or says how a request ended.

        What comes of an attempt that has ended meanwhile concerns nobody.
        """
        job = slot.queue[0]
        match frame:
            case AskPermit(token=job.lease.token):
                self._ask(slot, job, frame)
            case ReturnPermit(token=job.lease.token):
                attempt = self._attempts.get(slot.number)
                if attempt is not None and attempt.token == frame.token:
                    asked = attempt.asked.get(frame.n)
                    if asked is not None:
                        self._meet(asked, AskEvent.RETURNED)
            case BlockBucket(token=job.lease.token):
                self._block(slot, job, frame)
            case RequestEnded(token=job.lease.token):
                self._requests.note(frame)
            case AskPermit() | ReturnPermit() | BlockBucket() | RequestEnded():
                pass
            case _:
                name = type(frame).__name__
                raise JobpoolBug(f"expected a permit, got {name}; please report this")
        self.flush()

    def answered(self, event: inp.PermitsAnswered) -> None:
        """The store has answered, or could not."""
        answers = event.answers or [PermitAnswer(granted=False)] * len(event.asks)
        for ask, answer in zip(event.asks, answers, strict=True):
            asked = self._found(ask)
            if asked is None:
                continue  # its attempt has ended, and the store knows or will
            asked.retry_in_s = answer.retry_in_s
            asked.answer_until_s = asked.until_s
            is_waited_for = asked.state is AskState.ASKED
            is_old = answer.granted and is_waited_for and self._is_old(asked)
            asked.in_doubt = event.answers is None or is_old
            if answer.granted and not is_old:
                self._meet(asked, AskEvent.GRANTED)
            elif answer.stale:
                self._meet(asked, AskEvent.NEVER)
            else:
                self._meet(asked, AskEvent.REFUSED)
        self.flush()

    def keep_time(self) -> None:
        """Do what is due, and set the wake-up for what is due next."""
        now_s = self._step.now_s
        for number, attempt in list(self._attempts.items()):
            waits = [one for one in attempt.asked.values() if one.state is not _S.HELD]
            if waits and not _runs(waits[0].slot, attempt.token):
                del self._attempts[number]
                continue
            for asked in waits:
                if asked.ends_s <= now_s:
                    self._meet(asked, AskEvent.OVER)
                elif asked.state is _S.WAITING and asked.next_s <= now_s:
                    self._meet(asked, AskEvent.DUE)
        self.flush()
        self._requests.keep_time()
        for asked in self._all():
            if asked.state is _S.WAITING:
                self._step.wake_at(min(asked.next_s, asked.until_s))
            elif asked.state is _S.ASKED:
                self._step.wake_at(asked.answer_until_s)

    def flush(self) -> None:
        """Give the store what has come together, returns first."""
        if self._returns:
            self._step.out.append(cmd.ReturnPermits(self._returns))
            self._returns = []
        if self._asks:
            self._step.out.append(cmd.TakePermits(self._asks))
            self._asks = []

    # -- what the child says -------------------------------------------------------

    def _ask(self, slot: Slot, job: Assigned, frame: AskPermit) -> None:
        attempt = self._attempt(slot, frame.token)
        if frame.n in attempt.asked or len(attempt.asked) >= PERMITS_MAX:
            many = len(attempt.asked) >= PERMITS_MAX
            what = "a flood of requests for permits" if many else "a request twice"
            self._killing.garbage(slot, what)
            return
        wait_s = frame.wait_s
        if wait_s is None:
            registry = self._step.registry
            quota = registry.quotas.get(frame.quota) if registry else None
            wait_s = quota.wait_s if quota is not None else DEFAULT_WAIT_S
        ask = PermitAsk(
            job.lease.id, frame.token, frame.n, frame.quota, frame.value, frame.cost
        )
        now_s = self._step.now_s
        wait_s = max(0.0, min(wait_s, waits_until(job, now_s) - now_s))
        asked = _Asked(ask, slot, now_s + wait_s, now_s + max(wait_s, ANSWER_S))
        attempt.asked[frame.n] = asked
        job.beat_s = asked.answer_until_s  # it is alive, and waits
        self._step.wake_at(asked.answer_until_s)
        self._send(asked)

    def _block(self, slot: Slot, job: Assigned, frame: BlockBucket) -> None:
        attempt = self._attempt(slot, frame.token)
        ran_s = self._step.now_s - (job.started_s or self._step.now_s)
        if attempt.blocks >= BLOCKS_FREE + BLOCKS_PER_S * ran_s:
            return
        attempt.blocks += 1
        registry = self._step.registry
        quota = registry.quotas.get(frame.quota) if registry else None
        most_s = quota.throttle_max_s if quota is not None else DEFAULT_THROTTLE_MAX_S
        after_ms = round(min(frame.after_s, most_s) * 1000)
        throttle = Throttle(frame.quota, frame.value, after_ms)
        self._step.out.append(cmd.BlockBuckets([throttle]))

    # -- actions of the table ------------------------------------------------------

    def _meet(self, asked: _Asked, event: AskEvent) -> None:
        action = PERMIT_ACTIONS[asked.state][event]
        if action == IMPOSSIBLE:
            raise JobpoolBug(
                f"a request for a permit of {asked.ask.quota} is {asked.state} and met "
                f"{event}; please report this"
            )
        if action != IGNORE:
            self._actions[action](asked)

    def _send(self, asked: _Asked) -> None:
        """Make the request: of the store, or here."""
        ask, places = asked.ask, self._places
        asked.state, asked.next_s = AskState.ASKED, NEVER_S
        asked.sent_s = self._step.now_s + self._step.slept_s
        self._give_up_doubtful(asked)
        cap = places.caps.get(ask.quota)
        if cap is None:
            self._asks.append(ask)
        elif ask.cost > cap:
            self._meet(asked, AskEvent.NEVER)
        elif places.has_room(ask.quota, ask.cost):
            places.take(ask.token, ask.quota, ask.cost, ask.n)
            self._meet(asked, AskEvent.GRANTED)
        else:
            self._meet(asked, AskEvent.REFUSED)

    def _grant(self, asked: _Asked) -> None:
        asked.state = AskState.HELD
        self._say(asked, granted=True)

    def _wait(self, asked: _Asked) -> None:
        now_s, again_s = self._step.now_s, asked.retry_in_s
        asked.state = AskState.WAITING
        if again_s is not None and now_s + again_s > asked.until_s:
            self._refuse(asked)
            return
        asked.next_s = now_s + (CAP_AGAIN_S if again_s is None else again_s)
        self._step.wake_at(min(asked.next_s, asked.until_s))

    def _refuse(self, asked: _Asked) -> None:
        never = asked.state is AskState.ASKED
        ask = asked.ask
        self._say(
            asked,
            granted=False,
            refused=f"a permit of quota {ask.quota} with a cost of {ask.cost} will "
            "never be granted: that is more than the quota has, or the lease of this "
            "attempt was taken back"
            if never
            else "",
        )
        self._forget(asked)

    def _refuse_and_give_up(self, asked: _Asked) -> None:
        asked.state = AskState.GIVEN_UP
        self._say(asked, granted=False)

    def _give_up(self, asked: _Asked) -> None:
        asked.state = AskState.GIVEN_UP

    def _is_old(self, asked: _Asked) -> bool:
        """Say whether a rate may have counted it too long ago to be used now."""
        registry = self._step.registry
        quota = registry.quotas.get(asked.ask.quota) if registry else None
        has_rate = quota is None or quota.rate is not None
        now_s = self._step.now_s + self._step.slept_s
        return has_rate and now_s - asked.sent_s > DELAY_MAX_S

    def _give_up_doubtful(self, asked: _Asked) -> None:
        """Return a permit that may be there; no harm is done if it is not."""
        if asked.in_doubt:
            asked.in_doubt = False
            self._returns.append(PermitReturn(asked.ask.token, asked.ask.n))

    def _forget(self, asked: _Asked) -> None:
        self._give_up_doubtful(asked)
        attempt = self._attempts.get(asked.slot.number)
        if attempt is not None:
            attempt.asked.pop(asked.ask.n, None)

    def _give_back(self, asked: _Asked) -> None:
        """Return a permit, and ask again for those who wait for one of its bucket."""
        ask = asked.ask
        self._forget(asked)
        if self._places.holds(ask.token, ask.quota, ask.n):
            self._places.give_back(ask.token, ask.quota, ask.n)
            self._step.wake_at(self._step.now_s)  # kinds may have been held for it
        else:
            self._returns.append(PermitReturn(ask.token, ask.n))
        for other in list(self._all()):
            waits = other.bucket == asked.bucket and other.state is AskState.WAITING
            if waits and _runs(other.slot, other.ask.token):
                self._meet(other, AskEvent.DUE)

    # -- helpers -------------------------------------------------------------------

    def _say(self, asked: _Asked, *, granted: bool, refused: str = "") -> None:
        slot = asked.slot
        slot.queue[0].beat_s = self._step.now_s
        retry_in_s = None if granted else asked.retry_in_s
        if retry_in_s is not None:
            retry_in_s = min(retry_in_s, RETRY_MAX_S)
        answer = PermitAnswered(asked.ask.n, granted, retry_in_s, refused)
        self._step.out.append(cmd.Send(slot.number, answer))

    def _attempt(self, slot: Slot, token: int) -> _Attempt:
        attempt = self._attempts.get(slot.number)
        if attempt is None or attempt.token != token:
            attempt = self._attempts[slot.number] = _Attempt(token)
        return attempt

    def _found(self, ask: PermitAsk) -> _Asked | None:
        """Return the request that an answer is for, if its attempt still runs."""
        for attempt in self._attempts.values():
            if attempt.token == ask.token:
                asked = attempt.asked.get(ask.n)
                if asked is not None and _runs(asked.slot, ask.token):
                    return asked
        return None

    def _all(self) -> Iterator[_Asked]:
        for attempt in self._attempts.values():
            yield from attempt.asked.values()


def _runs(slot: Slot, token: int) -> bool:
    is_busy = slot.state is SlotState.BUSY
    return is_busy and bool(slot.queue) and slot.queue[0].lease.token == token
