"""Job: what `enqueue` and `get` return, a handle that reads the store when asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from jobpool.client.ending import successful, wait_finished
from jobpool.client.gateway import Gateway
from jobpool.core.job import Job as StoredJob
from jobpool.core.job import JobState
from jobpool.core.quantity import DurationLike, duration_s
from jobpool.errors import ConfigError, UsageError

R = TypeVar("R")


class Job(Generic[R]):
    """One job in the store. Made by jobpool, not by applications.

    Attributes:
        id: the job's number.
        kind: the handler's name.
        created: False if `enqueue` returned a job that was there already, because of
            its key or unique text.
    """

    __slots__ = ("_decode", "_gateway", "created", "id", "kind")

    def __init__(
        self,
        job_id: int,
        kind: str,
        *,
        created: bool,
        gateway: Gateway,
        decode: Callable[[bytes | None], Any],
    ) -> None:
        self.id = job_id
        self.kind = kind
        self.created = created
        self._gateway = gateway
        self._decode = decode

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        return self.id == other.id and self._gateway is other._gateway

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def state(self) -> JobState:
        """Where the job stands now; errors as of `info`."""
        return self.info().state

    @property
    def progress(self) -> Any:
        """What its handler last reported with ``heartbeat(progress=)``, or None."""
        progress = self.info().progress
        return None if progress is None else msgspec.json.decode(progress)

    def info(self) -> StoredJob:
        """Read the whole record: counters, times, figures, the last error.

        Raises:
            JobNotFound: it has been pruned.
            UsageError: this is a handler of a strict pool.
            StoreUnavailable: the store could not be read.
        """
        return self._gateway.read(self.id)

    def wait(self, timeout: DurationLike | None = None) -> JobState:
        """Wait until the job has finished, whatever its end.

        Args:
            timeout: ``"5s"``, seconds or a timedelta; None: for ever; 0: look once.

        Returns:
            Its final state.

        Raises:
            WaitTimeout: it has not finished in time; it goes on.
            JobNotFound: it has been pruned.
            UsageError: this is a handler, where only ``timeout=0`` works.
        """
        return self._finished(timeout).state

    def result(self, timeout: DurationLike | None = None) -> R:
        """Wait until the job has finished and return what its handler returned.

        Without a timeout it waits for ever, also where no supervisor runs.

        The result comes as its annotation says: a handler ``-> datetime`` gives a
        datetime. Without an annotation it is plain JSON.

        Args:
            timeout: as for `wait`.

        Raises:
            JobUnsuccessful: it is dead, quarantined or canceled; says why.
            WaitTimeout: it has not finished in time; it goes on.
            JobNotFound: it has been pruned.
            UsageError: this is a handler, where only ``timeout=0`` works.
        """
        decoded: R = self._decode(successful(self._finished(timeout)).result)
        return decoded

    def cancel(self) -> bool:
        """Cancel the job; a running one is killed at its supervisor's next look.

        Returns:
            False if it had finished already.

        Raises:
            JobNotFound: it has been pruned.
            UsageError: this is a handler; children never open the store.
        """
        return cancel(self._gateway, self.id)

    def _finished(self, timeout: DurationLike | None) -> StoredJob:
        try:
            timeout_s = None if timeout is None else duration_s(timeout, "timeout")
        except ConfigError as exc:
            raise UsageError(str(exc)) from None
        if timeout_s != 0:
            self._gateway.store("waiting for a job")
            self._gateway.refuse_in_transaction("waiting for a job")
        return wait_finished(self._gateway.read, self.id, timeout_s)


def cancel(gateway: Gateway, job_id: int) -> bool:
    """Cancel one job, as `Job.cancel` says."""
    store = gateway.store("cancel")
    gateway.refuse_in_transaction("cancel")
    if store.cancel([job_id]):
        store.ring()
        return True
    gateway.read(job_id)
    return False
