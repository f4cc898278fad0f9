"""Which steps of a flow share a box in its picture, so that a large one can be seen.

Theory of operation. Up to `FOLD_FROM` steps each have a box of their own. Beyond, steps
share one that nobody needs to tell apart: *twins*, which stand between the same steps
and look the same; then the middle of *chains* that look the same, if there are many
ranks; then all of a *rank* that look the same; and at last *bands* of several ranks.
Each is tried only while there are too many boxes. Looks are states, so that what failed
and what runs never disappears among what is done, but for bands.

An edge leads from lower to higher ranks, and what shares a box is of one rank, one
chain or one band: so there are no circles between boxes. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from jobpool.words.flows.order import Before, in_order

FOLD_FROM = 48
"""More steps begin to share boxes."""
BOXES_MAX = 160
"""Most boxes of a picture, but for bands."""
RANKS_MAX = 16
"""In more ranks, chains are folded."""
BANDS_MAX = 60
"""Most ranks of a picture."""
TWINS_LEAST = 4
"""Fewer are drawn each."""
_CHAIN_LEAST = 4

Group = tuple[int, ...]
"""Steps that share a box, in order of their numbers."""
K = TypeVar("K", bound=Hashable)


def ranks_of(before: Before) -> dict[int, int]:
    """Return the rank of each step: one more than the highest that comes before it."""
    ranks: dict[int, int] = {}
    for step in in_order(before):
        ranks[step] = 1 + max((ranks[one] for one in before[step]), default=-1)
    return ranks


def folded(
    before: Before, looks: Mapping[int, str], *, whole: bool = False
) -> list[Group]:
    """Return which steps share a box.

    Args:
        before: all steps.
        looks: what each looks like, such as its state.
        whole: draw each step, as long as there are not far too many.
    """
    ranks = ranks_of(before)
    alone: list[Group] = [(step,) for step in sorted(before)]
    most = BOXES_MAX if whole else FOLD_FROM
    if len(alone) <= most:
        return alone
    groups = _shared(_by_twins(before, looks), TWINS_LEAST)
    if len(set(ranks.values())) > RANKS_MAX:
        groups = _with_chains(before, looks, groups)
    if len(groups) > BOXES_MAX:
        groups = _shared({step: (rank, looks[step]) for step, rank in ranks.items()}, 2)
    if 1 + max(ranks.values()) > BANDS_MAX and len(groups) > BOXES_MAX:
        height = -(-(1 + max(ranks.values())) // BANDS_MAX)
        groups = _shared({step: rank // height for step, rank in ranks.items()}, 2)
    return groups


def after_of(before: Before) -> dict[int, list[int]]:
    """Return the steps that come right after each."""
    after: dict[int, list[int]] = {step: [] for step in before}
    for step in sorted(before):
        for one in before[step]:
            after[one].append(step)
    return after


def _by_twins(before: Before, looks: Mapping[int, str]) -> dict[int, Hashable]:
    after = after_of(before)
    return {
        step: (frozenset(before[step]), frozenset(after[step]), looks[step])
        for step in before
    }


def _shared(keys: Mapping[int, K], least: int) -> list[Group]:
    """Return steps of the same key together, if there are enough of them."""
    by_key: defaultdict[K, list[int]] = defaultdict(list)
    for step in sorted(keys):
        by_key[keys[step]].append(step)
    return _sorted(
        group
        for steps in by_key.values()
        for group in ([tuple(steps)] if len(steps) >= least else [(n,) for n in steps])
    )


def _with_chains(
    before: Before, looks: Mapping[int, str], groups: Sequence[Group]
) -> list[Group]:
    """Fold the middle of each chain of single steps that look the same."""
    after = after_of(before)
    single = {group[0] for group in groups if len(group) == 1}
    inner = {
        step for step in single if len(before[step]) == 1 and len(after[step]) == 1
    }
    found = [group for group in groups if group[0] not in inner]
    for step in in_order(before):
        if step not in inner or _goes_on(step, before, looks, inner):
            continue
        chain = [step]
        while _goes_on(after[chain[-1]][0], before, looks, inner):
            chain.append(after[chain[-1]][0])
        is_long = len(chain) >= _CHAIN_LEAST
        found += [tuple(chain)] if is_long else [(one,) for one in chain]
    return _sorted(found)


def _goes_on(
    step: int, before: Before, looks: Mapping[int, str], inner: Collection[int]
) -> bool:
    """Say whether a step goes on with the chain that the one before it is in."""
    if step not in inner:
        return False
    (above,) = before[step]
    return above in inner and looks[above] == looks[step]


def _sorted(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=min)
