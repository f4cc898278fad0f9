"""Two numbers that are counted together over the last while, in few bytes.

A window is cut into slots. What is counted belongs to the slot of its time, and a slot
is dropped as a whole once all of it is older than the window. So sums are of at least
the window, and at most of a slot more.
"""

from __future__ import annotations

import msgspec

SLOTS = 12
_NUMBER_MAX = 2**53


class Slot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What was counted in one slot."""

    number: int
    """Slots since the epoch."""
    first: int = 0
    second: int = 0


class Window(msgspec.Struct, frozen=True, array_like=True):
    """Counts of two numbers, oldest slot first; at most `SLOTS` and the current one.

    Its length is not part of it: give the same to each call, or counts of another
    length are taken for it.
    """

    slots: tuple[Slot, ...] = ()

    def add(self, now_ms: int, window_s: float, first: int, second: int) -> Window:
        """Return the window with more counted; negative numbers take some back.

        Args:
            now_ms: the store's clock.
            window_s: how long the window is, in seconds.
            first: how many to add to the first number.
            second: to the second one.
        """
        number = _slot(now_ms, window_s)
        slots = {one.number: one for one in self._kept(now_ms, window_s)}
        before = slots.get(number, Slot(number))
        slots[number] = Slot(
            number,
            max(0, min(before.first + first, _NUMBER_MAX)),
            max(0, min(before.second + second, _NUMBER_MAX)),
        )
        return Window(
            tuple(one for _, one in sorted(slots.items()) if one.first or one.second)
        )

    def sums(self, now_ms: int, window_s: float) -> tuple[int, int]:
        """Return both sums over the window."""
        kept = self._kept(now_ms, window_s)
        return sum(one.first for one in kept), sum(one.second for one in kept)

    def current(self, now_ms: int, window_s: float) -> tuple[int, int]:
        """Return what was counted in the current slot."""
        number = _slot(now_ms, window_s)
        kept = [one for one in self._kept(now_ms, window_s) if one.number == number]
        return (kept[0].first, kept[0].second) if kept else (0, 0)

    def _kept(self, now_ms: int, window_s: float) -> list[Slot]:
        """Return the slots that count.

        Those of the future count as the current one, if the clock was set back by less
        than the window; else nobody knows, and they count for nothing.
        """
        number = _slot(now_ms, window_s)
        kept = [one for one in self.slots if number - SLOTS <= one.number < number]
        near = [one for one in self.slots if number <= one.number <= number + SLOTS]
        if near:
            kept.append(
                Slot(
                    number,
                    sum(one.first for one in near),
                    sum(one.second for one in near),
                )
            )
        return kept


def next_slot_ms(now_ms: int, window_s: float) -> int:
    """Return when the next slot begins, and the oldest is dropped."""
    length_ms = _length_ms(window_s)
    return (_slot(now_ms, window_s) + 1) * length_ms


def _slot(now_ms: int, window_s: float) -> int:
    return now_ms // _length_ms(window_s)


def _length_ms(window_s: float) -> int:
    return max(1, round(window_s * 1000 / SLOTS))
