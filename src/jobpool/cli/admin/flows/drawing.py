"""What of flows is drawn: a bar, and a step in the tree. Pure."""

from __future__ import annotations

from rich.text import Text

from jobpool.core.jobs.job import JobState
from jobpool.core.safe_text import one_line
from jobpool.store.records.flows import StepRow
from jobpool.words.flows.words import BAD, NAME_MAX, SKIPPED, Tally, state_word

_BAR = (
    ((JobState.SUCCEEDED,), "█", "green"),
    (BAD, "▚", "red"),
    ((SKIPPED,), "─", "dim"),
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


def label(step: StepRow, stem: str = "") -> Text:
    """Return a step's place in the tree, its sign, its number and its name."""
    sign, style = _SIGNS.get(state_word(step), ("◌", "cyan"))
    text = Text().append(stem, "dim").append(f"{sign} ", style)
    text.append(f"{step.number} ", "dim")
    return text.append(one_line(step.name, NAME_MAX), "bold" if style != "dim" else "")
