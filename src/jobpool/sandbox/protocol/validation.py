"""Validates a child's messages: it may be hostile, and so may every number in them.

Our own child code obeys all of these rules; whatever does not is no message of ours.
The supervisor must be able to compute with what passes, and to store it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobpool.core.application.reports import (
    REPORTS_MAX,
    REPORTS_MAX_BYTES,
    Report,
)
from jobpool.core.jobs.flow import (
    ADDED_MAX,
    ADDED_MAX_BYTES,
    EDGES_MAX,
    FLOW_AT_ONCE,
    STEPS_MAX,
    AskedFlow,
)
from jobpool.core.jobs.job import NewJob
from jobpool.core.units import DURATION_MAX_S, SIZE_MAX_BYTES
from jobpool.sandbox.protocol.messages import (
    OUTPUT_MAX_BYTES,
    AboutPermits,
    Ask,
    Beat,
    BlockBucket,
    Done,
    FromChild,
    Raised,
    Ready,
    RequestEnded,
    ReturnPermit,
)

TEXT_MAX_CHARS = 128 * 1024
CLASSES_MAX = 64
PROGRESS_MAX_BYTES = 64 * 1024
ASK_JOBS_MAX = 10_000
FLOW_MAX_CHARS = 255
"""Of each name in a flow that is to be stored, and of its key and tenant."""
QUOTA_MAX_CHARS = 128
VALUE_MAX_CHARS = 512
"""More than the values have that quotas count by: long ones are hashed."""
COST_MAX = 2**31 - 1
NUMBER_MAX = 2**63 - 1
"""What a store can hold."""
_SLACK_BYTES = 1024
"""How much a truncation mark may add to a capped text."""


def screened(
    frames: Sequence[FromChild],
    *,
    result_max_bytes: int,
    checkpoint_max_bytes: int,
    wrong_with: Callable[[Sequence[NewJob]], str | None],
) -> tuple[Sequence[FromChild], str | None]:
    """Return the messages before the first bad one, and what is wrong with it.

    Args:
        frames: the messages, of the right types, in order.
        result_max_bytes: cap of a result.
        checkpoint_max_bytes: cap of a checkpoint.
        wrong_with: says why a store would not take some members; None: it would.
    """
    for place, frame in enumerate(frames):
        if type(frame) is Done:  # nearly all of them are
            wrong = _done(frame, result_max_bytes)
            if frame.added and not wrong:
                wrong = _added(frame.added) or wrong_with(frame.added)
            if frame.reports and not wrong:
                wrong = _reports(frame.reports)
        elif isinstance(frame, AboutPermits):
            wrong = _about_permits(frame)
        else:
            wrong = _problem(frame, checkpoint_max_bytes)
        if wrong:
            return frames[:place], wrong
    return frames, None


def _problem(frame: FromChild, checkpoint_max_bytes: int) -> str | None:
    """Say what is wrong with a message other than `Done`; None: nothing."""
    match frame:
        case Beat():
            if len(frame.progress or b"") > PROGRESS_MAX_BYTES:
                return f"progress of {len(frame.progress or b'')} bytes"
            if len(frame.checkpoint or b"") > checkpoint_max_bytes:
                return f"a checkpoint of {len(frame.checkpoint or b'')} bytes"
        case Ask():
            return _asked(frame)
        case Ready():
            if not _is_size(frame.rss_bytes):
                return f"a resident memory of {frame.rss_bytes} bytes"
        case _:
            pass
    return None


def _asked(ask: Ask) -> str | None:
    wanted = ask.results
    if len(ask.jobs) > (ASK_JOBS_MAX if ask.flow is None else FLOW_AT_ONCE):
        return f"a request to store {len(ask.jobs)} jobs at once"
    stores = bool(ask.jobs) or ask.flow is not None
    if stores + (ask.reads is not None) + (wanted is not None) > 1:
        return "a request that stores and reads"
    if wanted is not None and not 0 <= wanted.after_id <= NUMBER_MAX:
        return "a request for results after an impossible job"
    numbers = () if wanted is None else wanted.numbers or ()
    if len(numbers) > STEPS_MAX or not all(0 <= n < STEPS_MAX for n in numbers):
        return "a request for results of impossible steps"
    return None if ask.flow is None else _flow(ask.flow, ask.jobs)


def _flow(asked: AskedFlow, jobs: Sequence[NewJob]) -> str | None:
    """Say what is wrong with a flow; its shape and its jobs are judged by the store."""
    flow, steps, numbers = asked.flow, asked.flow.steps, asked.numbers
    edges = sum(len(step.after) for step in steps)
    if not 0 < len(steps) <= STEPS_MAX or edges > EDGES_MAX:
        return f"a flow of {len(steps)} steps and {edges} edges"
    if len(numbers) != len(jobs) or not all(0 <= n < len(steps) for n in numbers):
        return "a flow with members of impossible steps"
    names = [*(step.name for step in steps), *(job.kind for job in jobs)]
    texts = (flow.name, flow.key or "", flow.tenant or "", *names)
    if any(len(text) > FLOW_MAX_CHARS for text in texts):  # errors repeat them
        return "a flow with a name of endless length"
    return None


def _done(done: Done, result_max_bytes: int) -> str | None:
    most = SIZE_MAX_BYTES
    if not (0 <= done.rss_bytes <= most and 0 <= done.peak_rss_bytes <= most):
        return "the end of an attempt with an impossible memory figure"
    longest = DURATION_MAX_S  # the comparison excludes NaN and infinity
    if not (0.0 <= done.duration_s <= longest and 0.0 <= done.cpu_s <= longest):
        return "the end of an attempt with an impossible duration"
    if len(done.result) > result_max_bytes:
        return f"a result of {len(done.result)} bytes, over the cap"
    if len(done.output) > OUTPUT_MAX_BYTES + _SLACK_BYTES:
        return f"{len(done.output)} bytes of output, over the cap"
    if len(done.surprise) > TEXT_MAX_CHARS:
        return "a surprise of endless length"
    return None if done.error is None else _raised(done.error)


def _reports(reports: Sequence[Report]) -> str | None:
    size_bytes = sum(report.size_bytes for report in reports)
    if len(reports) > REPORTS_MAX or size_bytes > REPORTS_MAX_BYTES:
        return f"{len(reports)} reports of {size_bytes} bytes, over the cap"
    return None


def _added(jobs: Sequence[NewJob]) -> str | None:
    if len(jobs) > ADDED_MAX:
        return f"{len(jobs)} jobs added to a flow"
    if sum(len(job.payload) for job in jobs) > ADDED_MAX_BYTES:
        return "too many bytes of jobs added to a flow"
    return None


def _raised(error: Raised) -> str | None:
    texts = (error.message, error.traceback, error.out_of_memory, *error.classes)
    if len(error.classes) > CLASSES_MAX or any(
        len(text) > TEXT_MAX_CHARS for text in texts
    ):
        return "an error of endless length"
    for delay_s in (error.retry_in_s, error.snooze_s):
        if delay_s is not None and not _is_duration(delay_s):
            return "an error with an impossible delay"
    if error.throttled is not None and not _is_bucket(*error.throttled):
        return "an error that names an impossible quota"
    return None


def _about_permits(frame: AboutPermits) -> str | None:
    wrong: str | None = None
    if isinstance(frame, ReturnPermit):
        if not 0 < frame.n <= NUMBER_MAX:
            wrong = "a permit with an impossible number"
    elif not _is_bucket(frame.quota, frame.value):
        wrong = "a request about an impossible quota"
    elif isinstance(frame, BlockBucket):
        if not _is_duration(frame.after_s):
            wrong = "a block of an impossible duration"
    elif isinstance(frame, RequestEnded):
        pass
    elif not (0 < frame.n <= NUMBER_MAX and 0 < frame.cost <= COST_MAX):
        wrong = "a request for an impossible permit"
    elif frame.wait_s is not None and not _is_duration(frame.wait_s):
        wrong = "a request for a permit with an impossible wait"
    return wrong


def _is_bucket(quota: str, value: str) -> bool:
    """Say whether a store can hold these; it has no text with a NUL."""
    sizes_fit = 0 < len(quota) <= QUOTA_MAX_CHARS and len(value) <= VALUE_MAX_CHARS
    return sizes_fit and "\0" not in quota and "\0" not in value


def _is_size(size_bytes: int) -> bool:
    return 0 <= size_bytes <= SIZE_MAX_BYTES


def _is_duration(seconds: float) -> bool:
    return 0.0 <= seconds <= DURATION_MAX_S  # excludes NaN and infinity
