"""What is asked of a store by those who watch the queue, and tell what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jobpool.store.records.alerts import (
    AlertEvent,
    AlertRow,
    Endings,
    Incident,
    Turn,
    Watch,
)


class Alerting(Protocol):
    """Incidents open and end, and are told."""

    def watch(self) -> Watch:
        """Return who has looked last, and what it noted."""
        ...

    def take_turn(self, turn: Turn) -> bool:
        """Store what a look has come to, if nobody else had this turn.

        For each incident that opens or ends, each receiver gets an alert in the same
        transaction. One that is open already, of the same rule and subject, does not
        open again. Incidents that ended `KEPT_MS` ago are deleted, with their alerts.

        Returns:
            False: somebody else had it; nothing was changed.
        """
        ...

    def incidents(self, *, ended: bool = False, limit: int = 100) -> list[Incident]:
        """Return the incidents that are open, the newest first.

        Args:
            ended: those that have ended as well, after these: the last first.
            limit: the most.
        """
        ...

    def alerts(self, limit: int = 100) -> list[AlertRow]:
        """Return what was told or is to be told, the newest first."""
        ...

    def unsent(self, receivers: Sequence[str]) -> tuple[int, int]:
        """Return how many alerts are not sent yet, and for how long the oldest waits.

        In milliseconds; 0: none is.

        Args:
            receivers: alerts for these; what is for others nobody may ever send.
        """
        ...

    def endings(
        self, since_ms: int, *, lost_since_ms: int, after_attempt: int | None
    ) -> Endings:
        """Count how jobs have ended, the newest 100,000 of each way.

        It costs what has ended since then.

        Args:
            since_ms: jobs that have succeeded at this moment or later.
            lost_since_ms: jobs that became dead or quarantined then or later; not
                after the former.
            after_attempt: attempts that have failed after the `last_attempt` of another
                call; None: none.
        """
        ...

    def stuck_flows(self, before_ms: int) -> list[tuple[int, str]]:
        """Return ids and names of open flows of which nothing has moved for long.

        Nothing of them runs, is delayed, or waits for a person, and nothing has ended
        or fallen due since. Of the 1,000 oldest that are open.

        Args:
            before_ms: since this moment.
        """
        ...

    def claim_alert(self, receivers: Sequence[str], for_s: float) -> AlertRow | None:
        """Take the alert that has waited longest, to send it.

        Of the alerts about an incident a receiver gets one after the other.

        Args:
            receivers: for one of these.
            for_s: for so long nobody else gets it.

        Returns:
            It, as it is now; None: none is due.
        """
        ...

    def settle_alert(
        self,
        alert: AlertRow,
        event: AlertEvent,
        *,
        after_s: float = 0.0,
        error: str | None = None,
    ) -> bool:
        """Store what became of an alert that was claimed.

        Args:
            alert: as it was claimed.
            event: what happened.
            after_s: if it was refused: when it is tried again.
            error: why it is not sent.

        Returns:
            False: somebody else has claimed it since; nothing was changed.
        """
        ...
