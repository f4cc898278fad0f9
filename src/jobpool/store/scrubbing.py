"""The part of the Store protocol about rows that somebody else has spoilt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Scrubbed(Protocol):
    """A store in which one spoilt row costs itself, and no other."""

    def scrub(self, after_id: int | None) -> int | None:
        """Look at some rows for what somebody else has spoilt there, and put it right.

        Jobs are looked at a few hundred in a call, in the order of their ids; all
        small tables in each. An unfinished job whose row cannot be read is set aside:
        dead, with that reason. So is one that is leased by a run that is none.

        Args:
            after_id: what the last call returned; None: begin.

        Returns:
            Where to go on; None: that was all.
        """
        ...

    def spoilt_rows(self) -> Sequence[str]:
        """Return what was set aside or put right since the last call; costs nothing."""
        ...
