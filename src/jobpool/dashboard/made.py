"""Pages that were made: one that would be the same is not made again.

Theory of operation. Open pages are asked for again whenever something has changed, by
everybody who looks: most of what a page costs is making its text. What was read for
several is the same object for all of them, so that one look says whether a text that
was made of it is what would be made now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

_TEXTS_MAX = 32


class Made:
    """The newest texts of pages, and what each was made of."""

    def __init__(self) -> None:
        self._texts: OrderedDict[Hashable, tuple[tuple[object, ...], str]]
        self._texts = OrderedDict()

    def text(
        self, whose: Hashable, basis: tuple[object, ...], make: Callable[[], str]
    ) -> str:
        """Return a text that was made of the same, or make it.

        Args:
            whose: all else that it depends on, such as who asks and for what.
            basis: what it is made of; (): that cannot be said.
            make: makes it.
        """
        if not basis:
            return make()
        known = self._texts.pop(whose, None)
        if known is None or not _is_same(known[0], basis):
            known = basis, make()
        self._texts[whose] = known
        if len(self._texts) > _TEXTS_MAX:
            self._texts.popitem(last=False)
        return known[1]


def _is_same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(
        a is b for a, b in zip(one, other, strict=True)
    )
