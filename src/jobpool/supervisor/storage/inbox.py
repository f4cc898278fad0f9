"""The inbox: what the loop leaves for the store thread between two commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from jobpool.core.events.event import Event
from jobpool.core.jobs.job import Progress, Settlement, Start
from jobpool.core.rules.run_report import RunReport
from jobpool.store.protocol import Store
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.storage.permits import PermitBatch, report_requests

FULL_BATCH = 256
"""This many settlements do not wait for more."""
Posts = Sequence[inp.SupervisorEvent | Event]
Chore = Callable[[Store], Posts]
"""A task for the store thread; returns what is to be posted to the loop."""


@dataclass(slots=True)
class Inbox:
    """The loop's commands for the store, by type."""

    settlements: list[Settlement] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    asks: list[cmd.Enqueue] = field(default_factory=list)
    lease: cmd.Lease | None = None
    safety_notes: list[cmd.SafetyNote] = field(default_factory=list)
    chores: list[Chore] = field(default_factory=list)
    permits: PermitBatch = field(default_factory=PermitBatch)
    report: RunReport | None = None
    """It is written with something else, and wakes nobody."""

    def take(self, command: cmd.Command) -> None:
        """Add a command."""
        match command:
            case cmd.Settle():
                self.settlements += command.settlements
            case cmd.Record():
                self.progress.append(command.progress)
            case cmd.NoteStart():
                self.starts.append(command.start)
            case cmd.Enqueue():
                self.asks.append(command)
            case cmd.Lease():
                self.lease = command
            case cmd.TakePermits() | cmd.ReturnPermits() | cmd.BlockBuckets():
                self.permits.take(command)
            case cmd.ReportRequests():
                self.chores.append(partial(report_requests, command))
            case cmd.Report():
                self.report = command.report
            case cmd.Clear() | cmd.SaveBreaker() | cmd.Leaving():
                self.safety_notes.append(command)
            case _:
                raise TypeError(f"{type(command).__name__} is not the store's")

    @property
    def can_wait(self) -> bool:
        """Whether no answer is awaited, and the batch may grow."""
        return (
            self.lease is None
            and not self.asks
            and not self.chores
            and not self.permits.asks
            and len(self.settlements) < FULL_BATCH
        )

    @property
    def is_to_be_written(self) -> bool:
        """Whether a transaction is needed beside those of settlements and permits."""
        is_asked = self.asks or self.lease is not None
        return bool(is_asked or self.progress or self.starts or self.safety_notes)

    def __bool__(self) -> bool:
        others = self.settlements or self.chores or self.permits
        return self.is_to_be_written or bool(others)
