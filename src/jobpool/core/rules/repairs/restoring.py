"""How far tokens and ids jump after a store was restored: above any ever given.

A restored store does not know what was granted after its backup. But it holds times of
what happened before it, and no store grants more than `GRANTS_PER_S` for long. So the
counter goes on from where it was, plus that rate times the age of the backup, plus a
day of it: for clocks that were wrong by less than a day, and for bursts.

Several restores of one backup do not meet either: as long as the clock goes forward
between them, each jumps further than the one before by at least what was granted since.
So nothing may be rounded or cut off here: not even an age below zero.

Tokens have room for nearly three years of backups' age, added up over all restores.
"""

from __future__ import annotations

import math

from jobpool.core.units import show_duration
from jobpool.errors import StoreRefused, UsageError

GRANTS_PER_S = 100_000
"""More leases, and more new jobs, than a store takes on average over a day."""
CLOCK_ERROR_S = 86_400.0
"""By how much the clocks that wrote the store's times may have been wrong."""
TOKEN_BITS = 20
"""The lowest bits of a token are random; what counts is above them."""
TOKENS_MAX = 2 ** (63 - TOKEN_BITS) - 1
IDS_MAX = 2**53 - 1
"""Beyond it, JSON readers in other languages round ids."""


def age_s(
    *, now_ms: int, newest_ms: int | None, lost_since_ms: int | None = None
) -> float:
    """Return how old a backup is at most, by what is known of it.

    Less than zero: by at most a day, if the clock that wrote the backup was ahead.

    Args:
        now_ms: the store's clock.
        newest_ms: the newest time of the past that the store holds.
        lost_since_ms: when the backup was taken, as far as the operator knows.

    Raises:
        UsageError: that cannot be told; nothing was changed.
    """
    known = [at_ms for at_ms in (newest_ms, lost_since_ms) if at_ms is not None]
    if not known:
        raise UsageError(
            "the store holds no time from which the backup's age could be told; say "
            "when it was taken: --lost-since. Nothing was changed"
        )
    passed_s = (now_ms - min(known)) / 1000
    if passed_s < -CLOCK_ERROR_S:
        raise UsageError(
            f"the newest time in the store is {show_duration(-passed_s)} from now: the "
            "clock is wrong, or was when the store was written. Set it right, or say "
            "when the backup was taken: --lost-since. Nothing was changed"
        )
    return passed_s


def tokens_after(counter: int, backup_age_s: float) -> int:
    """Return the count of tokens from which a restored store goes on.

    Args:
        counter: where the restored store's source of tokens stands.
        backup_age_s: as of `age_s`.

    Raises:
        StoreRefused: there are no such tokens any more.
    """
    after = counter + _jump(backup_age_s)
    if after > TOKENS_MAX:
        raise StoreRefused(
            f"a backup that is {show_duration(backup_age_s)} old leaves this store no "
            f"tokens above those that may have been given ({counter:,} of "
            f"{TOKENS_MAX:,} were); enqueue its jobs into a new store. Nothing was "
            "changed"
        )
    return after


def ids_after(last_id: int, backup_age_s: float, seen_id: int = 0) -> int:
    """Return the id after which a restored store's new jobs begin.

    Args:
        last_id: where the restored store's source of ids stands.
        backup_age_s: as of `age_s`.
        seen_id: the highest id that somebody remembers.

    Raises:
        StoreRefused: there are no such ids any more.
    """
    after = max(last_id + _jump(backup_age_s), seen_id)
    if after > IDS_MAX:
        raise StoreRefused(
            f"job ids would go on after {after:,}, and only those up to {IDS_MAX:,} "
            "can be read everywhere; enqueue its jobs into a new store. Nothing was "
            "changed"
        )
    return after


def _jump(backup_age_s: float) -> int:
    return math.ceil(GRANTS_PER_S * (backup_age_s + CLOCK_ERROR_S))
