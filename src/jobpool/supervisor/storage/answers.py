"""What a handler that asks the store is answered."""

from __future__ import annotations

from jobpool.errors import JobpoolError, KeyConflict, QueueFull, StoreError, UsageError
from jobpool.sandbox.protocol.messages import Answer, FrameError, encode
from jobpool.store.protocol import Store
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.storage.step_results import read_results


def is_apart(ask: cmd.Enqueue, *, shared: bool) -> bool:
    """Say whether a request gets a transaction of its own, after everything else.

    A flow does: its many rows hold up no settlement, and its failure undoes none. On a
    store that others write as well, so do jobs whose key or unique text those may lock.
    """
    if ask.flow is not None:
        return True
    return shared and any(
        job.key is not None or job.unique is not None for job in ask.jobs
    )


def answered(store: Store, ask: cmd.Enqueue) -> inp.Stored:
    """Store or read a handler's jobs, or store its flow; its own errors are its answer.

    Raises:
        StoreError: nothing is known to be stored.
    """
    try:
        if ask.results is not None:
            results = read_results(store, ask.job_id, ask.results)
            answer = Answer(ask.ask, [], results=results)
        elif ask.flow is not None:
            members = zip(ask.flow.numbers, ask.jobs, strict=True)
            stored = store.enqueue_flow(ask.flow.flow, members)
            answer = Answer(ask.ask, [], flow=stored)
        elif ask.reads is None:
            answer = Answer(ask.ask, store.enqueue(ask.jobs))
        else:
            answer = Answer(ask.ask, [], found=store.get(ask.reads))
            _refuse_endless(answer, ask.reads)
    except (UsageError, JobpoolError) as exc:
        if isinstance(exc, StoreError):
            raise
        answer = refusal(ask.ask, exc, may_read=ask.may_read)
    return inp.Stored(ask.slot, ask.child, answer)


def _refuse_endless(answer: Answer, job_id: int) -> None:
    """Refuse an answer too long to send: only a manual edit can make such a job.

    Raises:
        UsageError: it is longer than a message may be.
    """
    try:
        encode(answer)
    except FrameError as exc:
        raise UsageError(
            f"job {job_id} cannot be read in a handler: {exc}. Its row was edited "
            f"outside jobpool; see `jobpool show {job_id}`"
        ) from exc


def refusal(ask: int, error: JobpoolError, *, may_read: bool = False) -> Answer:
    """Return the answer that tells of an error."""
    answer = Answer(ask, None, error_class=type(error).__name__, error=str(error))
    if isinstance(error, KeyConflict):
        answer.job_id = error.job_id
        if may_read:
            answer.encoded = list(error.encoded)
    elif isinstance(error, QueueFull):
        answer.full = error.__dict__
    return answer
