"""What every action has: a name, a target, a note, and steps that change the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import msgspec

from jobpool.operations.principal import Principal
from jobpool.store.protocol import Store


class Change(NamedTuple):
    """What one step has changed."""

    is_made: bool
    jobs: int = 0
    ids: Sequence[int] = ()
    """The jobs that it was applied to, where they still exist."""
    new_ids: Sequence[int] = ()
    """The jobs that have replaced them."""
    changed: Sequence[str] = ()
    """Paths of the arguments that were changed; never their values."""


Step = Callable[[], Change]
"""Changes the store, within the transaction that also writes the audit row."""


@dataclass(kw_only=True)
class Done:
    """What an action has done so far; all of it once `operate` has returned."""

    jobs: int = 0
    """Changed."""
    is_made: bool = False
    """Anything was changed."""
    matched: int = 0
    """Selected."""
    is_counting: bool = False
    """More may be selected: they are not counted yet."""
    refused: Sequence[str] = ()
    """Remarks about ids that it does not apply to."""
    notes: Sequence[str] = ()
    """What is worth knowing about it."""
    replaced_by: dict[int, int] = field(default_factory=dict)
    """New jobs by those that they have replaced."""
    canaries: dict[int, str] = field(default_factory=dict)
    """States, as shown, of the jobs that were to end before the rest follows."""
    ended: set[int] = field(default_factory=set)
    """Those of them that have ended."""
    failed: list[int] = field(default_factory=list)
    """Those that ended badly."""
    is_stopped: bool = False
    """Too many had: the rest was left as it was."""
    is_unwanted: bool = False
    """Set by whoever asked for it: it ends before its next step."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person does. A subclass is one verb."""

    name: ClassVar[str]
    """As in the audit trail: a verb."""
    note: str | None = None
    """Why, in the person's words."""

    def target(self) -> dict[str, Any]:
        """Return what it is done to, as JSON values: names and filters, no payloads."""
        raise NotImplementedError

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """Yield changes, each to be made in a transaction of its own.

        What follows a ``yield`` runs after that step's commit. If one fails, the
        action ends there, and what was committed stays.

        Args:
            store: the store.
            by: who does it.
            done: what is known beside the count is noted here.
        """
        raise NotImplementedError
