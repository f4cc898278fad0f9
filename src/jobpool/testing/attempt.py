"""One attempt of a test's queue: it completes nothing, and waits for nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from jobpool.client.payload.results import encode_result
from jobpool.client.registration import Registration
from jobpool.core.config.settings import ClientSettings
from jobpool.core.jobs.job import Lease, NewJob, Start
from jobpool.core.jobs.trace import read_trace
from jobpool.core.rules.lifecycle import Ending
from jobpool.errors import Superseded
from jobpool.sandbox.protocol.verdict import verdict_of_done
from jobpool.store.protocol import Store
from jobpool.supervisor.dev.attempt import encoding_of, run_attempt
from jobpool.supervisor.dev.channel import StoreChannel, UseStore
from jobpool.supervisor.machine.attempts.running import run_job
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.machine.state.slot import Assigned
from jobpool.testing.faults import SLOT


class Finished(NamedTuple):
    """How an attempt ended."""

    ending: Ending
    added: Sequence[NewJob]
    """What it adds to its flow, if it has succeeded."""
    error: BaseException | None
    """What its handler raised."""


class _Channel(StoreChannel):
    """Answers a handler as a supervisor would, but for what needs others.

    Nobody else could return a permit meanwhile, and a completion is kept, not written:
    what a test has for a connection may be anything.
    """

    waits = False
    is_superseded = False
    result: bytes | None = None
    """What it has completed with, as JSON."""

    def claim(self) -> None:
        """Return None: nothing is written on a test's connection."""

    def complete(self, connection: Any, result: Any) -> None:
        """Keep a completion; its result must be storable, as in a child."""
        del connection
        self._speak()
        self._end.complete(lambda: self._keep(result))

    def _keep(self, result: Any) -> None:
        most = self._settings.result_max_bytes
        encoded = encode_result(result, self._lease.kind, most)
        if self.is_superseded:
            raise Superseded("complete(): the test has taken the lease back")
        self.result = encoded


def run_leased(
    application: Registration,
    store: Store,
    run_id: str,
    lease: Lease,
    *,
    registry: Registry,
    settings: ClientSettings,
    boottime_s: float,
    superseded: bool,
) -> Finished:
    """Run a leased job's handler in this process.

    Args:
        application: has its handler.
        store: has the lease.
        run_id: of the run that holds it.
        lease: the job's.
        registry: knows its kind.
        settings: of the queue.
        boottime_s: the test's clock.
        superseded: the lease is taken back before it begins.
    """
    store.begin_attempts([Start(lease.id, lease.token, SLOT, boottime_s)])
    encoding = encoding_of(application, lease.codec)
    use: UseStore = lambda question: question(store)  # noqa: E731 - typed so
    answers = _Channel(
        use,
        run_id,
        lease,
        registry=registry,
        settings=settings,
        encoding=encoding,
        codec=application.named_codec,
        stopping=lambda: False,
        record=lambda news: store.record([news]),
    )
    answers.is_superseded = superseded
    job = Assigned(lease, registry.policy(lease.kind), registry.limits(lease), 0.0)
    job.trace, job.sent_s = read_trace(lease.trace), job.leased_s
    done, error = run_attempt(
        application,
        run_job(job, None),
        answers,
        encoding,
        result_max_bytes=settings.result_max_bytes,
    )
    answers.close()
    ending = verdict_of_done(done, SLOT, encoded=lease.codec is not None)
    if answers.result is not None and error is None:
        result = encoding.result(answers.result)
        ending = msgspec.structs.replace(ending, result=result)
    return Finished(ending, answers.added(), error)


def trace_of(lease: Lease) -> str | None:
    """Return an attempt's trace context, as a supervisor that sends no spans has it."""
    trace = read_trace(lease.trace)
    return None if trace is None else trace.text
