"""Watches the queue, in turn with all others who do, and tells what is wrong.

Theory of operation. Each of those who watch looks whether a turn is due. It reads the
queue, judges it by the notes of the last turn, and stores what has changed, with notes
for the next one, in one transaction; whoever comes second with the same turn drops what
it has found. Then it sends what is to be sent: each alert is claimed first. So any of
them may be killed at any time, and the others go on where it was.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from jobpool.core.clock import Clock, SystemClock
from jobpool.core.config.settings import AlertSettings
from jobpool.core.events.alerts import (
    AlertNotSent,
    IncidentEnded,
    IncidentOpened,
    NotWatched,
)
from jobpool.core.events.event import Event
from jobpool.core.safe_text import unexpected
from jobpool.errors import JobpoolError
from jobpool.monitoring.alerts.away import AGAIN_S as AWAY_AGAIN_S
from jobpool.monitoring.alerts.away import Away
from jobpool.monitoring.alerts.looking import Look, look, served
from jobpool.monitoring.alerts.messages import (
    Unreadable,
    digest,
    last_digest_ms,
    last_words,
    message,
)
from jobpool.monitoring.alerts.notes import (
    Notes,
    Signal,
    SignalState,
    read_notes,
    write_notes,
)
from jobpool.monitoring.alerts.receivers.http import request
from jobpool.monitoring.alerts.receivers.receiver import NotTaken, Receiver
from jobpool.monitoring.alerts.rules import folded, judge
from jobpool.monitoring.alerts.signals import Changes, Subject, Verdict, changes
from jobpool.store.protocol import Store
from jobpool.store.records.alerts import (
    AlertEvent,
    AlertRow,
    Ending,
    Found,
    Incident,
    NewAlert,
    Turn,
    Watch,
)

EVERY_S = 15.0
_SHARE = 0.05
"""Of the time: the most that goes into looking."""
_POLL_S = 5.0
"""How soon one sees what others have left to be sent."""
_CLAIM_S = 60.0
"""Longer than any receiver may take."""
_AT_ONCE = 10
"""So many alerts are sent before it is looked again."""
_AGAIN_S, _AGAIN_MAX_S = 10.0, 900.0
"""The pause before the second try; doubled each time, up to the other."""
GIVE_UP_MS = 86_400_000
"""An alert that is older is tried no more."""
HEARTBEAT_MS = 60_000
_UNHEARD_MS = 600_000
"""Alerts that cannot be sent for so long: nobody hears of anything, so the heartbeat
stops, and whoever misses it learns of that."""
_OPEN_MAX = 10_000
_OF_JOBS = frozenset({Ending.DEAD.value, Ending.QUARANTINED.value})
_ENDS = 200
"""Of so many attempts the one is looked for that an incident is about."""
_CLOSE_S = 5.0


class Watcher:
    """Watches in a thread of its own, until closed.

    Args:
        opener: opens the store; called in that thread.
        settings: the rules.
        receivers: who is told, by name.
        observe: hears what this one finds; called in that thread.
        clock: for durations and the times of events.
        every_s: how often somebody looks.
        first_s: begin so much later.
        queue: the store's URL without a password, for when it is away.
    """

    def __init__(
        self,
        opener: Callable[[], Store],
        settings: AlertSettings,
        receivers: Mapping[str, Receiver],
        observe: Callable[[Event], None],
        *,
        clock: Clock | None = None,
        every_s: float = EVERY_S,
        first_s: float = 0.0,
        queue: str,
    ) -> None:
        self._opener = opener
        self._settings = settings
        self._receivers = receivers
        self._observe = observe
        self._clock = clock or SystemClock()
        self._least_s = self._every_s = every_s
        self._first_s = first_s
        self._store: Store | None = None
        self._turn = 0
        self._away = Away(
            after_s=settings.store_s,
            queue=queue,
            host=socket.gethostname(),
            receivers=receivers,
            send=self._send_away,
            clock=self._clock,
        )
        self._said = ""
        """Why it could not look, as it was last said."""
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="jobpool-alerts", daemon=True
        )

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Watch no more; what is being sent is not waited for long."""
        self._closing.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        wait_s = self._first_s
        try:
            while not self._closing.wait(wait_s):
                self.once()
                wait_s = min(_POLL_S, self._every_s)
        finally:
            self._leave()

    def once(self) -> None:
        """Take a step, with the store opened if it is not; tell if it is away."""
        try:
            self._try_once()
        except Exception as exc:  # noqa: BLE001 - else nobody would watch any more
            self._leave()
            self._complain(unexpected(exc))

    def _try_once(self) -> None:
        try:
            self._store = self._store or self._opener()
            self.step(self._store)
        except JobpoolError as exc:
            self._leave()
            self._complain(str(exc))
            self._away.failed(str(exc), self._turn)
        else:
            self._said = ""
            self._away.answered()

    def _leave(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _complain(self, why: str) -> None:
        """Say why nothing can be seen; the same only once."""
        if why != self._said:
            self._said = why
            self._observe(NotWatched(at_ms=self._clock.utc_ms(), reason=why))

    def step(self, store: Store) -> None:
        """Look if it is time, and send what is due.

        Raises:
            StoreError: the store cannot be used.
        """
        watch = store.watch()
        self._turn = watch.turn
        passed_ms = watch.now_ms - watch.at_ms
        try:
            # A clock that was set back would make it wait for long.
            if not 0 <= passed_ms < self._every_s * 1000:
                began_s = self._clock.monotonic_s()
                self._look(store, watch)
                took_s = self._clock.monotonic_s() - began_s
                self._every_s = max(self._least_s, took_s / _SHARE)
        finally:  # whatever it has met, what was found before is told
            self._send_all(store, watch.now_ms)

    # -- looking -----------------------------------------------------------------------

    def _look(self, store: Store, watch: Watch) -> None:
        notes, now_ms = read_notes(watch.notes), watch.now_ms
        seen = look(store, now_ms, notes, self._settings)
        verdicts, later = judge(seen, notes, self._settings)
        open_ones = {
            (one.rule, one.subject): one for one in store.incidents(limit=_OPEN_MAX)
        }
        verdicts = folded(verdicts, open_ones)
        passed_s = (now_ms - watch.at_ms) / 1000
        found = changes(
            _known(notes, open_ones.values()), verdicts, now_ms, passed_s=passed_s
        )
        beats = self._beats(store, seen, notes)
        later = msgspec.structs.replace(
            later,
            signals=found.signals,
            heartbeat_ms=now_ms if beats else notes.heartbeat_ms,
        )
        told = None
        if self._settings.digest is not None:
            due_ms = last_digest_ms(now_ms, self._settings.digest)
            if due_ms > notes.digest_ms:
                told = _digest_of(store, notes.digest_ms, due_ms, now_ms)
                later = msgspec.structs.replace(later, digest_ms=now_ms)
        turn = Turn(
            number=watch.turn,
            notes=write_notes(later),
            opened=tuple(_found(store, found.opened, verdicts)),
            ended=tuple(open_ones[one].id for one in found.ended if one in open_ones),
            receivers=tuple(self._receivers),
            digest=told,
        )
        if not store.take_turn(turn):
            return
        self._turn = turn.number + 1
        self._say(turn, found, open_ones, now_ms)
        if beats:
            self._beat()

    def _say(
        self,
        turn: Turn,
        found: Changes,
        open_ones: Mapping[tuple[str, str], Incident],
        now_ms: int,
    ) -> None:
        for one in turn.opened:
            if (one.rule, one.subject) not in open_ones:
                self._observe(
                    IncidentOpened(
                        at_ms=now_ms,
                        rule=one.rule,
                        subject=one.subject,
                        summary=one.summary,
                    )
                )
        for incident in (open_ones[one] for one in found.ended if one in open_ones):
            self._observe(
                IncidentEnded(
                    at_ms=now_ms,
                    rule=incident.rule,
                    subject=incident.subject,
                    summary=incident.summary,
                    lasted_s=(now_ms - incident.opened_at_ms) / 1000,
                )
            )

    # -- the heartbeat -----------------------------------------------------------------

    def _beats(self, store: Store, seen: Look, notes: Notes) -> bool:
        """Say whether it is time, and all is well with those who watch and tell."""
        if self._settings.heartbeat_url is None:
            return False
        if 0 <= seen.now_ms - notes.heartbeat_ms < HEARTBEAT_MS:
            return False
        is_alive = served(seen.runs, seen.now_ms)
        _, unheard_ms = store.unsent(tuple(self._receivers))
        return bool(is_alive) and unheard_ms < _UNHEARD_MS

    def _beat(self) -> None:
        url = self._settings.heartbeat_url or ""
        private = self._settings.allow_private
        refusal = _refusal(lambda: request("GET", url, allow_private=private))
        if refusal is not None:
            again_s = HEARTBEAT_MS / 1000
            self._not_sent("heartbeat", "heartbeat_url", refusal, again_s)

    # -- sending -----------------------------------------------------------------------

    def _send_all(self, store: Store, now_ms: int) -> None:
        """Send what is due, as far as nobody else does."""
        for _ in range(_AT_ONCE):
            if self._closing.is_set():
                return
            alert = store.claim_alert(tuple(self._receivers), _CLAIM_S)
            if alert is None:
                return
            self._send(store, alert, now_ms)

    def _send(self, store: Store, alert: AlertRow, now_ms: int) -> None:
        """Send an alert that was claimed, and store what became of it."""
        receiver = self._receivers[alert.receiver]
        refusal = _refusal(lambda: receiver.send(alert.name, message(alert, store.url)))
        if refusal is None:
            store.settle_alert(alert, AlertEvent.TAKEN)
            return
        again_s: float | None = None
        event = AlertEvent.GIVE_UP
        is_new = now_ms - alert.made_at_ms < GIVE_UP_MS
        if is_new and not isinstance(refusal, Unreadable):
            event = AlertEvent.REFUSED
            again_s = min(_AGAIN_MAX_S, _AGAIN_S * 2.0 ** min(alert.tries - 1, 10))
        store.settle_alert(alert, event, after_s=again_s or 0.0, error=str(refusal))
        self._not_sent(alert.name, alert.receiver, refusal, again_s)

    def _send_away(self, receiver: str, name: str, body: bytes) -> bool:
        """Send what no row of the store says; say whether it was taken."""
        try:
            self._receivers[receiver].send(name, body)
        except NotTaken as exc:
            self._not_sent(name, receiver, exc, AWAY_AGAIN_S)
            return False
        return True

    def _not_sent(
        self, alert: str, receiver: str, why: NotTaken, again_in_s: float | None
    ) -> None:
        self._observe(
            AlertNotSent(
                at_ms=self._clock.utc_ms(),
                alert=alert,
                receiver=receiver,
                reason=str(why),
                again_in_s=again_in_s,
            )
        )


def _refusal(send: Callable[[], object]) -> NotTaken | None:
    """Send something; return why it was not taken, or None.

    A bug in that costs no other alert.
    """
    try:
        send()
    except NotTaken as exc:
        return exc
    except Exception as exc:  # noqa: BLE001 - it is told
        return NotTaken(unexpected(exc))
    return None


def _known(notes: Notes, incidents: Iterable[Incident]) -> Iterator[Signal]:
    """Yield the signals that were noted, and those of incidents that nobody noted.

    Notes that could not be read must not leave an incident open for ever.
    """
    noted = {(one.rule, one.subject) for one in notes.signals}
    yield from notes.signals
    for one in incidents:
        if (one.rule, one.subject) not in noted:
            state = SignalState.OPEN
            yield Signal(one.rule, one.subject, state, one.opened_at_ms)


def _found(
    store: Store, opened: Collection[Subject], verdicts: Mapping[Subject, Verdict]
) -> Iterator[Found]:
    """Yield what is wrong since this turn; of jobs that ended, how the last did."""
    are_jobs = any(rule in _OF_JOBS for rule, _ in opened)
    ends = store.ends(_ENDS) if are_jobs else ()
    for rule, subject in opened:
        text = verdicts[rule, subject].summary + last_words(ends, rule, subject)
        yield Found(rule=rule, subject=subject, summary=text)


def _digest_of(
    store: Store, since_ms: int, due_ms: int, now_ms: int
) -> NewAlert | None:
    """Return a digest from the last one's moment on; None: there is nothing to tell."""
    if not since_ms:
        return None  # the first is due a day after somebody has asked for it
    found = store.endings(now_ms, lost_since_ms=since_ms, after_attempt=None)
    return digest(found.counts, since_ms, due_ms)
