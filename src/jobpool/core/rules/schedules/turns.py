"""Turns: which ticks of a schedule start, wait, or are skipped for others.

Back-filled ticks run one after another. Except under `allow_all` they also wait for the
schedule's other jobs, and other ticks wait for the one that runs. They are never
canceled or skipped for a newer tick.
"""

from __future__ import annotations

from jobpool.core.rules.schedules.policy import (
    BUFFER_MAX,
    DECISIONS,
    Ahead,
    Buffer,
    Decision,
    Overlap,
    Policy,
)
from jobpool.core.rules.schedules.schedule import (
    OpenTick,
    PlannedTick,
    Progress,
    TickState,
)


class Turns:
    """A schedule's ticks during one step.

    Attributes:
        started: buffered ticks that get their jobs.
        skipped: buffered ticks whose place was taken.
        canceled: ids of jobs to be canceled.
        written: new ticks, by nominal time.
    """

    def __init__(self, policy: Policy, ticks: tuple[OpenTick, ...]) -> None:
        self._policy = policy
        self._may_overlap = policy.overlap is Overlap.ALLOW_ALL
        self._running: list[OpenTick] = []
        """Unfinished, and not backfilled."""
        self._buffered: list[int] = []
        self._is_backfilling = False
        self._to_backfill: list[int] = []
        for tick in sorted(ticks):
            if tick.progress is Progress.BUFFERED:
                waiting = self._to_backfill if tick.is_backfilled else self._buffered
                waiting.append(tick.nominal_ms)
            elif tick.progress in (Progress.RUNNING, Progress.RETRYING):
                if tick.is_backfilled:
                    self._is_backfilling = True
                else:
                    self._running.append(tick)
        self.started: list[int] = []
        self.skipped: list[int] = []
        self.canceled: list[int] = []
        self.written: dict[int, PlannedTick] = {}

    @property
    def is_unfinished(self) -> bool:
        """Whether a job of the schedule is unfinished."""
        return bool(self._running) or self._is_backfilling

    @property
    def waits(self) -> bool:
        """Whether a tick waits for the end of a job."""
        return bool(self._buffered or self._to_backfill)

    def add(self, nominal_ms: int) -> None:
        """Decide about a tick that is not backfilled."""
        decision = DECISIONS[self._policy.overlap, self._ahead(), self._buffer()]
        match decision:
            case Decision.START:
                self._write(nominal_ms, TickState.OPEN)
                self._runs(nominal_ms)
            case Decision.REPLACE:
                self._cancel_running()
                self._write(nominal_ms, TickState.OPEN)
                self._runs(nominal_ms)
            case Decision.BUFFER:
                self._write(nominal_ms, TickState.BUFFERED)
                self._buffered.append(nominal_ms)
            case Decision.CANCEL:
                self._cancel_running()
                self._skip_buffered()
                self._write(nominal_ms, TickState.BUFFERED)
                self._buffered.append(nominal_ms)
                self.start_buffered()
            case Decision.SKIP:
                self._write(nominal_ms, TickState.SKIPPED)

    def add_backfilled(self, nominal_ms: int) -> None:
        """Put a tick in the line of those that are backfilled."""
        self.written[nominal_ms] = PlannedTick(
            nominal_ms, TickState.BUFFERED, is_backfilled=True
        )
        self._to_backfill.append(nominal_ms)
        self._to_backfill.sort()

    def start_buffered(self) -> None:
        """Start what waits and may start, backfilled ticks aside."""
        may = (Ahead.NOTHING, Ahead.RETRY)
        while self._buffered and (self._may_overlap or self._ahead() in may):
            if self._ahead() is Ahead.RETRY:
                self._cancel_running()
            nominal_ms = self._buffered.pop(0)
            self._start(nominal_ms)
            self._runs(nominal_ms)

    def start_backfilled(self) -> None:
        """Start the oldest of those to be backfilled, if it may."""
        blocked = self._is_backfilling or (self._running and not self._may_overlap)
        if self._to_backfill and not blocked:
            self._start(self._to_backfill.pop(0))
            self._is_backfilling = True

    def _ahead(self) -> Ahead:
        if not self._running:
            return Ahead.BACKFILLED if self._is_backfilling else Ahead.NOTHING
        is_kept = self._policy.keeps_retries or self._is_backfilling
        retry = all(tick.progress is Progress.RETRYING for tick in self._running)
        return Ahead.RETRY if retry and not is_kept else Ahead.RUNNING

    def _buffer(self) -> Buffer:
        if not self._buffered:
            return Buffer.EMPTY
        return Buffer.HELD if len(self._buffered) < BUFFER_MAX else Buffer.FULL

    def _runs(self, nominal_ms: int) -> None:
        self._running.append(OpenTick(nominal_ms, Progress.RUNNING))

    def _write(self, nominal_ms: int, state: TickState) -> None:
        self.written[nominal_ms] = PlannedTick(nominal_ms, state)

    def _start(self, nominal_ms: int) -> None:
        if tick := self.written.get(nominal_ms):
            self.written[nominal_ms] = tick._replace(state=TickState.OPEN)
        else:
            self.started.append(nominal_ms)

    def _cancel_running(self) -> None:
        """Cancel what is unfinished; what may have begun stays so for a while."""
        still = []
        for tick in self._running:
            if tick.job_id is None:  # started in this step: it has no job yet
                self._skip(tick.nominal_ms)
                continue
            if tick.job_id not in self.canceled:
                self.canceled.append(tick.job_id)
            if tick.progress is Progress.RUNNING:
                still.append(tick)
        self._running = still

    def _skip_buffered(self) -> None:
        for nominal_ms in self._buffered:
            self._skip(nominal_ms)
        self._buffered.clear()

    def _skip(self, nominal_ms: int) -> None:
        if nominal_ms in self.started:
            self.started.remove(nominal_ms)
        if tick := self.written.get(nominal_ms):
            self.written[nominal_ms] = tick._replace(state=TickState.SKIPPED)
        else:
            self.skipped.append(nominal_ms)
