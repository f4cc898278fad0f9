"""What is said of flows and their steps: words, numbers, a bar. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.text import Text

from jobpool.cli.output import ago, clock_time, counted, seconds
from jobpool.core.jobs.flow import Ending, FlowState, Hook, StepState, When
from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.core.safe_text import one_line
from jobpool.operations.trail.id_ranges import IdRanges
from jobpool.store.records.flows import FlowRow, StepRow

Tally = Mapping[str, int]
"""How many jobs are in which state, or belong to a step that was skipped."""

_SKIPPED = "skipped"
_BAD = (JobState.DEAD, JobState.QUARANTINED, JobState.CANCELED)
_BAR = (
    ((JobState.SUCCEEDED,), "█", "green"),
    (_BAD, "▚", "red"),
    ((_SKIPPED,), "─", "dim"),
    ((JobState.LEASED,), "▒", "cyan"),
)
"""From left to right: how jobs have ended, and what runs."""
_TO_COME = ("░", "dim")
_SIGNS = {
    "done": ("✔", "green"),
    "failed": ("✘", "bold red"),
    "running": ("●", "cyan"),
    "asks": ("?", "bold yellow"),
    "skipped": ("⊘", "dim"),
    "skipping": ("⊘", "dim"),
    "closed": ("·", "dim"),
}
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
_NAME_MAX = 40
_TURNS_MAX = 5


def tally(steps: Iterable[StepRow]) -> Counter[str]:
    """Count the members of steps; what was skipped is no failure."""
    total: Counter[str] = Counter()
    for step in steps:
        is_skipped = step.state in (StepState.SKIPPING, StepState.SKIPPED)
        for state, count in step.jobs.items():
            never = is_skipped and state is JobState.CANCELED
            total[_SKIPPED if never else state] += count
    return total


def bar(jobs: Tally, width: int) -> Text:
    """Return a bar of so many columns; what there is of anything is seen.

    Args:
        jobs: what it shows, at least one.
        width: at least 16.
    """
    total = sum(jobs.values())
    parts = [
        (sum(jobs.get(one, 0) for one in states), sign, style)
        for states, sign, style in _BAR
    ]
    parts.append((total - sum(count for count, _, _ in parts), *_TO_COME))
    columns = [max(1, width * count // total) if count else 0 for count, _, _ in parts]
    columns[columns.index(max(columns))] += width - sum(columns)
    drawn = Text()
    for (_, sign, style), count in zip(parts, columns, strict=True):
        drawn.append(sign * count, style)
    return drawn


def count_words(jobs: Tally) -> str:
    """Return how far the jobs of a flow are."""
    total = sum(jobs.values())
    ended = sum(jobs.get(state, 0) for state in (*FINISHED, _SKIPPED))
    parts = [f"{ended:,} of {counted_many(total, 'job')} ended"]
    parts += [f"{jobs[one]:,} {one}" for one in (*_BAD, _SKIPPED) if jobs.get(one)]
    if running := jobs.get(JobState.LEASED, 0):
        parts.append(f"{running:,} running")
    return ", ".join(parts)


def counted_many(number: int, noun: str) -> str:
    """Return a number that may be large with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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


def label(step: StepRow, stem: str = "") -> Text:
    """Return a step's place in the tree, its sign, its number and its name."""
    sign, style = _SIGNS.get(state_word(step), ("◌", "cyan"))
    text = Text().append(stem, "dim").append(f"{sign} ", style)
    text.append(f"{step.number} ", "dim")
    return text.append(one_line(step.name, _NAME_MAX), "bold" if style != "dim" else "")


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
        parts.append(f"{step.number} {one_line(step.name, _NAME_MAX)}{time}")
    return " → ".join(parts)


def waits_words(
    row: FlowRow, steps: Sequence[StepRow], now_ms: int, *, is_served: bool
) -> Iterator[str]:
    """Yield what an unfinished flow waits for; what to do stands beside it.

    Args:
        row: the flow.
        steps: all of them.
        now_ms: the store's clock, or one that is near it.
        is_served: a supervisor lives that could take it further.
    """
    if row.finished_at_ms is not None:
        return
    if row.state is FlowState.PAUSED:
        yield f"it is paused; nothing of it begins until: jobpool flows resume {row.id}"
    turns = [one for one in steps if one.state is StepState.READY]
    for step in turns[:_TURNS_MAX]:
        yield f"step {step.number} {step.name}: {_turn_words(step, now_ms)}"
    if (more := len(turns) - _TURNS_MAX) > 0:
        yield f"{counted(more, 'more step')} under way"
    if not turns and row.state is not FlowState.PAUSED:
        yield "a supervisor's next look at it, which opens what is next"
    if not is_served:
        yield "no supervisor is alive: nothing begins until one is"


def failed_words(row: FlowRow, steps: Sequence[StepRow]) -> Iterator[str]:
    """Yield which steps have failed of themselves, and where to look."""
    failed = [one for one in steps if one.failed and one.state is StepState.DONE]
    for step in failed[:_TURNS_MAX]:
        counts = [
            f"{counted_many(count, 'job')} {state}"
            for state in _BAD
            if (count := step.jobs.get(state, 0))
        ]
        is_one = sum(step.jobs.values()) == 1
        where = f"show {step.first_job}" if is_one else f"list --flow {row.id}"
        yield f"step {step.number} {step.name}: {', '.join(counts)}: jobpool {where}"
    if (more := len(failed) - _TURNS_MAX) > 0:
        yield f"{counted(more, 'more step')}"


def _turn_words(step: StepRow, now_ms: int) -> str:
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
    return f"an approval: jobpool flows approve {step.first_job}{until}"


def ending_words(row: FlowRow) -> str:
    """Return why nothing more of a flow begins; "": no reason, or it has ended."""
    if row.ending is None or row.finished_at_ms is not None:
        return ""
    return _ENDINGS[row.ending]
