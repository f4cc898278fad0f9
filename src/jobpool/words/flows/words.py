"""What is said of flows and their steps. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from jobpool.core.jobs.flow import Ending, FlowState, Hook, StepState, When
from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.core.safe_text import one_line
from jobpool.operations.trail.id_ranges import IdRanges
from jobpool.store.records.flows import FlowRow, StepRow
from jobpool.words.figures import ago, clock_time, counted, counted_many, seconds

Tally = Mapping[str, int]
"""How many jobs are in which state, or belong to a step that was skipped."""

SKIPPED = "skipped"
"""In a tally, beside the states of jobs."""
BAD = (JobState.DEAD, JobState.QUARANTINED, JobState.CANCELED)
"""Members in these states have made their step fail."""
_BEGINS = {
    When.SUCCEEDED: ("after {}", "after {}"),
    When.FAILED: ("if {} fails", "if all of {} fail"),
    When.FINISHED: ("once {} has ended", "once all of {} have ended"),
}
"""Of one step, and of several."""
_HOOKS = {
    Hook.SUCCESS: "if the flow succeeds",
    Hook.FAILURE: "if the flow fails",
    Hook.FINISH: "at the flow's end",
}
_ENDINGS = {
    Ending.FAIL: "a step has failed: nothing more begins but hooks",
    Ending.CANCEL: "somebody canceled it: nothing more begins but hooks",
}
_WAITING = (
    (JobState.LEASED, "{} running"),
    (JobState.RUNNABLE, "{} due, waiting for a slot"),
    (JobState.PENDING, "{} not due yet, or waiting for another attempt"),
    (JobState.WAITING, "{} to be opened by a supervisor's next look"),
)
NAME_MAX = 40
"""Characters of a step's name in a line."""
_TURNS_MAX = 5


def tally(steps: Iterable[StepRow]) -> Counter[str]:
    """Count the members of steps; what was skipped is no failure."""
    total: Counter[str] = Counter()
    for step in steps:
        is_skipped = step.state in (StepState.SKIPPING, StepState.SKIPPED)
        for state, count in step.jobs.items():
            never = is_skipped and state is JobState.CANCELED
            total[SKIPPED if never else state] += count
    return total


def count_words(jobs: Tally) -> str:
    """Return how far the jobs of a flow are."""
    total = sum(jobs.values())
    ended = sum(jobs.get(state, 0) for state in (*FINISHED, SKIPPED))
    parts = [f"{ended:,} of {counted_many(total, 'job')} ended"]
    parts += [f"{jobs[one]:,} {one}" for one in (*BAD, SKIPPED) if jobs.get(one)]
    if running := jobs.get(JobState.LEASED, 0):
        parts.append(f"{running:,} running")
    return ", ".join(parts)


def state_word(step: StepRow) -> str:
    """Return a step's state in one word, as people ask for it."""
    # Without jobs, there is nothing of it that was skipped: it stands for other steps.
    has_ended = step.state is StepState.DONE or (
        step.state is StepState.SKIPPED and not step.jobs
    )
    if has_ended and step.failed:
        return "failed"
    if step.state is not StepState.READY:
        return step.state.value
    if step.external:
        return "asks"
    return "running" if step.jobs.get(JobState.LEASED) else "ready"


def left_out_words(steps: Sequence[StepRow]) -> str:
    """Return what is said of steps in a row that have no line of their own."""
    states = Counter(map(state_word, steps))
    words = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    return f"{counted_many(len(steps), 'step')}: {words}"


def begins_words(step: StepRow) -> str:
    """Return after what a step begins; "": at once."""
    if step.hook is not None:
        return _HOOKS[step.hook]
    return ", ".join(
        (of_several if numbers[1:] else of_one).format(_numbers(numbers))
        for when, (of_one, of_several) in _BEGINS.items()
        if (numbers := [number for number, one in step.after if one is when])
    )


def _numbers(numbers: Iterable[int]) -> str:
    ranges = IdRanges()
    ranges.add(numbers)
    return str(ranges).replace(",", ", ")


def jobs_words(step: StepRow) -> str | None:
    """Return a step's job, or how many of its jobs have ended; None: it has none."""
    total = sum(step.jobs.values())
    if total == 1:
        return f"job {step.first_job}"
    ended = sum(step.jobs.get(state, 0) for state in FINISHED)
    return f"{ended:,} of {total:,}" if total else None


def took_s(step: StepRow, now_ms: int) -> float | None:
    """Return how long a step ran, or has been running; None: it has not begun."""
    if step.began_ms is None:
        return None
    if step.state is StepState.READY:
        return max(0, now_ms - step.began_ms) / 1000
    if step.ended_ms is None:
        return None
    return max(0, step.ended_ms - step.began_ms) / 1000


def path_words(path: Sequence[StepRow], now_ms: int) -> str:
    """Return a critical path with the times of its steps."""
    parts = []
    for step in path:
        took = seconds(took_s(step, now_ms))
        so_far = " so far" if step.state is StepState.READY else ""
        time = f" ({took}{so_far})" if took else ""
        parts.append(f"{step.number} {one_line(step.name, NAME_MAX)}{time}")
    return " → ".join(parts)


def waits_words(
    row: FlowRow,
    steps: Sequence[StepRow],
    now_ms: int,
    *,
    is_served: bool,
    commands: bool = True,
) -> Iterator[str]:
    """Yield what an unfinished flow waits for; what to do stands beside it.

    Args:
        row: the flow.
        steps: all of them.
        now_ms: the store's clock, or one that is near it.
        is_served: a supervisor lives that could take it further.
        commands: say what to do as a command.
    """
    if row.finished_at_ms is not None:
        return
    if row.state is FlowState.PAUSED:
        how = f": jobpool flows resume {row.id}" if commands else " it is resumed"
        yield f"it is paused; nothing of it begins until{how}"
    turns = [one for one in steps if one.state is StepState.READY]
    for step in turns[:_TURNS_MAX]:
        words = _turn_words(step, now_ms, commands=commands)
        yield f"step {step.number} {step.name}: {words}"
    if (more := len(turns) - _TURNS_MAX) > 0:
        yield f"{counted(more, 'more step')} under way"
    if not turns and row.state is not FlowState.PAUSED:
        yield "a supervisor's next look at it, which opens what is next"
    if not is_served:
        yield "no supervisor is alive: nothing begins until one is"


def failed_words(
    row: FlowRow, steps: Sequence[StepRow], *, commands: bool = True
) -> Iterator[str]:
    """Yield which steps have failed of themselves, and where to look."""
    failed = [one for one in steps if one.failed and one.state is StepState.DONE]
    for step in failed[:_TURNS_MAX]:
        counts = [
            f"{counted_many(count, 'job')} {state}"
            for state in BAD
            if (count := step.jobs.get(state, 0))
        ]
        is_one = sum(step.jobs.values()) == 1
        where = f"show {step.first_job}" if is_one else f"list --flow {row.id}"
        how = f": jobpool {where}" if commands else ""
        yield f"step {step.number} {step.name}: {', '.join(counts)}{how}"
    if (more := len(failed) - _TURNS_MAX) > 0:
        yield f"{counted(more, 'more step')}"


def _turn_words(step: StepRow, now_ms: int, *, commands: bool) -> str:
    """Return what keeps a ready step from being done."""
    if not step.external:
        parts = [
            words.format(counted_many(count, "job"))
            for state, words in _WAITING
            if (count := step.jobs.get(state, 0))
        ]
        return ", ".join(parts) or "a supervisor's next look at it"
    until = ""
    if step.until_ms is not None:
        when = clock_time(step.until_ms)
        until = f"; without it, it fails {ago(step.until_ms, now_ms)}, at {when}"
    how = f": jobpool flows approve {step.first_job}" if commands else ""
    return f"an approval{how}{until}"


def ending_words(row: FlowRow) -> str:
    """Return why nothing more of a flow begins; "": no reason, or it has ended."""
    if row.ending is None or row.finished_at_ms is not None:
        return ""
    return _ENDINGS[row.ending]


def age_s(row: FlowRow, now_ms: int) -> float:
    """Return how long a flow took, or has taken so far."""
    until_ms = now_ms if row.finished_at_ms is None else row.finished_at_ms
    return max(0, until_ms - row.created_at_ms) / 1000
