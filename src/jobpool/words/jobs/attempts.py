"""How the attempts of a job ended, and what that has spent of its budgets. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from jobpool.core.jobs.budget import RESET, attempt_words, budget_words
from jobpool.core.jobs.job import Attempt, Job
from jobpool.core.jobs.memory_trail import trail_of
from jobpool.core.jobs.outcome import CHARGES
from jobpool.core.rules.policy import INTERRUPTIONS_MAX
from jobpool.core.rules.quotas.throttle import THROTTLED_MAX_S, THROTTLES_MAX
from jobpool.core.units import show_duration
from jobpool.store.records.runs import KindRecord
from jobpool.words.figures import ago, seconds, size
from jobpool.words.jobs.memory_line import memory_line


def attempt_lines(attempts: Sequence[Attempt], now_ms: int) -> Iterator[str]:
    """Describe each attempt: how it ended, its figures, the reason, its memory."""
    for one in attempts:
        parts = (
            f"{attempt_words(one.attempt)} {one.outcome}",
            ago(one.finished_at_ms, now_ms),
            figures(one.duration_s, one.peak_rss_bytes, one.cpu_s),
            one.slot,
            f"version {one.app_version}" if one.app_version else "",
        )
        yield "  ".join(filter(None, parts))
        if reason := one.reason or one.error_class:
            yield f"   {reason}"
        if trail := trail_of(one.memory_trail):
            yield f"   {memory_line(trail)}"


def counts(job: Job, attempts: Sequence[Attempt], known: KindRecord | None) -> str:
    """Return how often a job was tried, and what that has spent of each budget.

    Args:
        job: as stored.
        attempts: the unsuccessful ones, oldest first.
        known: its kind as published, with the budgets; None: not published.
    """
    failed = [one for one in attempts if CHARGES[one.outcome].failure]
    since_reset = failed[max(0, len(failed) - job.failures) :]
    under = Counter(one.rule for one in since_reset if one.rule)
    rules = ", ".join(f"{n} under {rule}" for rule, n in under.items())
    most = job.max_attempts or (known.max_attempts if known else None)
    parts = (
        f"attempts {job.attempt}",
        budget_words("failures", job.failures, most) + (f" ({rules})" if rules else ""),
        budget_words("crashes", job.crashes, known.max_crashes if known else None),
        budget_words("interruptions", job.interruptions, INTERRUPTIONS_MAX),
        budget_words("recoveries", job.recoveries, None),
    )
    reset = f" ({RESET})" if len(failed) > job.failures else ""
    return f"{', '.join(parts)}{reset}"


def throttled_words(job: Job) -> str:
    """Return how often in a row a job was throttled, and how often it may be."""
    if not job.throttles:
        return ""
    within = show_duration(THROTTLED_MAX_S)
    return f"{job.throttles} of {THROTTLES_MAX} times in a row, within {within}"


def figures(
    duration_s: float | None, peak_rss_bytes: int | None, cpu_s: float | None
) -> str:
    """Return what is known of an attempt's time and memory."""
    pairs = (
        ("ran", seconds(duration_s)),
        ("peak", size(peak_rss_bytes)),
        ("CPU", seconds(cpu_s)),
    )
    return "  ".join(f"{name} {value}" for name, value in pairs if value is not None)


def evidence(attempt: Attempt) -> Iterator[tuple[str, str]]:
    """Yield what an attempt left, each with its heading."""
    for name, text in (
        ("TRACEBACK", attempt.traceback),
        ("STACK", handlers_part(attempt.stack)),
        ("OUTPUT", attempt.output),
    ):
        if text:
            yield name, text


def handlers_part(stack: str | None) -> str | None:
    """Return a stack dump without jobpool's own frames and the extension modules.

    ``show --json`` has all of it.
    """
    if stack is None:
        return None
    kept, below = [], False
    for line in stack.splitlines():
        is_frame = line.startswith("  File ")
        below = is_frame and (below or "/jobpool/client/" in line)
        if not below and not line.startswith("Extension modules:"):
            kept.append(line)
    return "\n".join(kept).rstrip("\n")
