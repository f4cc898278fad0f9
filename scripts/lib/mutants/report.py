"""What came of the mutants, on one page or as data."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from mutants.change import Change

_Z_95 = 1.96


class Verdict(NamedTuple):
    """What came of one mutant."""

    change: Change
    verdict: str
    """killed, timed out, survived, or equivalent: nobody could see it."""
    seen_by: str
    """The first test that failed; why, of an equivalent."""


def as_data(
    verdicts: Iterable[Verdict], *, known: int, controls: Counter[str], seed: int
) -> dict[str, Any]:
    """Return the figures.

    Args:
        verdicts: of the mutants that were tried.
        known: how many there are, tried or not.
        controls: how runs without any fault ended: what they "killed" is by mistake.
        seed: what chose the sample.
    """
    verdicts = list(verdicts)
    sums = Counter(one.verdict for one in verdicts)
    by_file: dict[str, Counter[str]] = defaultdict(Counter)
    for one in verdicts:
        by_file[one.change.file][one.verdict] += 1
    judged = sums.total() - sums["equivalent"]
    killed = sums["killed"] + sums["timed out"]
    return {
        "seed": seed,
        "mutants": known,
        "tried": sums.total(),
        **{name: sums[name] for name in _NAMES},
        "score": round(killed / judged, 4) if judged else None,
        "score_95": _interval(killed, judged) if judged < known else None,
        "controls": controls.total(),
        "controls_killed": controls["killed"] + controls["timed out"],
        "by_file": {file: dict(by_file[file]) for file in sorted(by_file)},
        "survivors": [
            one.change.summary()
            for one in sorted(verdicts, key=lambda v: (v.change.file, v.change.line))
            if one.verdict == "survived"
        ],
    }


_NAMES = ("killed", "timed out", "survived", "equivalent")


def _interval(killed: int, judged: int) -> tuple[float, float] | None:
    """Return Wilson's interval for the share that is killed."""
    if not judged:
        return None
    share, z2 = killed / judged, _Z_95**2
    middle = share + z2 / (2 * judged)
    half = _Z_95 * math.sqrt(share * (1 - share) / judged + z2 / (4 * judged**2))
    scale = 1 + z2 / judged
    return round((middle - half) / scale, 4), round((middle + half) / scale, 4)


def page(figures: dict[str, Any]) -> Iterator[str]:
    """Yield the figures as a page for people."""
    yield f"{'':52} {'killed':>7} {'timed out':>9} {'survived':>8} {'equivalent':>10}"
    for file, sums in figures["by_file"].items():
        yield _row(file.removeprefix("src/jobpool/"), sums)
    yield _row("all", figures)
    yield ""
    for one in figures["survivors"]:
        yield f"{one['file']}:{one['line']}: {one['change']}    in: {one['text']}"
    yield ""
    yield (
        f"{figures['tried']:,} of {figures['mutants']:,} mutants, "
        f"seed {figures['seed']}; without a fault, {figures['controls_killed']} of "
        f"{figures['controls']} runs failed"
    )
    if figures["score"] is not None:
        sure = figures["score_95"]
        yield (
            f"killed {figures['score']:.1%} of those that are not equivalent"
            + (f" (95 %: {sure[0]:.1%} to {sure[1]:.1%})" if sure else "")
            + "; a time-out counts as killed"
        )


def _row(name: str, sums: dict[str, Any]) -> str:
    numbers = [sums.get(key, 0) for key in _NAMES]
    return "{:52} {:7,} {:9,} {:8,} {:10,}".format(name, *numbers)
