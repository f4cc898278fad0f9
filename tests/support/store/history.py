"""What happened in a run, as plain records: the one input of `invariants`.

The test layers write them: the simulation for every step, chaos and
crash-point tests for what they can see (children's own marks, the store's rows). A
record names a job by its id, a lease by its token, a supervisor by its run. `at_s` is
true time on one axis; `store_ms` is the store's clock, which may jump.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from jobpool.core.jobs.flow import NewFlow

R = TypeVar("R", bound="Record")


class Record(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Something that happened."""

    at_s: float


class Called(Record, frozen=True, kw_only=True, gc=False):
    """A producer's call to enqueue one job has ended, or was never answered."""

    call: str
    """Stands in the job's arguments; a repetition under a key has the same one."""
    answer: str
    """``stored``, ``refused`` (nothing happened) or ``unknown``."""
    job: int = 0
    created: bool = False


class Granted(Record, frozen=True, kw_only=True, gc=False):
    """The store has committed a lease."""

    run: str
    job: int
    token: int
    attempt: int
    store_ms: int = 0


class Settled(Record, frozen=True, kw_only=True, gc=False):
    """The store has committed its answer to the end of a lease."""

    by: str
    """The run that wrote it."""
    job: int
    token: int
    receipt: str
    """``accepted``, ``stale``, ``completed`` or ``later``; ``superseded``: its handler
    was refused when it wanted to complete the job."""
    outcome: str | None
    state: str
    """The job's state after it."""
    changed: bool
    """The job's row is another than before."""
    wanted: str = ""
    """The state that was asked for; a cancellation may have changed it."""
    hooked: bool = False
    """A hook's job was stored with it."""
    holder: str = ""
    """The run that held the lease."""
    holder_until_ms: int = 0
    """Until when, as the store had it."""
    store_ms: int = 0
    canceled: bool = False
    """Its cancellation had been asked for."""
    by_itself: bool = False
    """Written by its handler, in a transaction of its own."""
    presumed: bool = False
    """Written by another run, which could not know what had begun."""
    costs: str = "itself"
    """What is charged: ``itself``; ``a recovery``; ``nothing``."""


class Expired(Record, frozen=True, kw_only=True, gc=False):
    """A job was canceled because no attempt had begun in time."""

    job: int
    store_ms: int = 0


class Deleted(Record, frozen=True, kw_only=True, gc=False):
    """A job that was over has been deleted, because its retention has ended."""

    job: int
    store_ms: int = 0


class Operated(Record, frozen=True, kw_only=True, gc=False):
    """An operator's act on a job was committed and has changed it."""

    job: int
    what: str
    """``cancel`` or ``revive``."""
    before: str
    after: str
    store_ms: int = 0


class Started(Record, frozen=True, kw_only=True, gc=False):
    """A handler began: told by its own process."""

    run: str
    host: str
    job: int
    token: int
    attempt: int
    child: str


class Struck(Record, frozen=True, kw_only=True, gc=False):
    """An attempt kills its supervisor, or its host."""

    job: int
    token: int
    host: str


class Ended(Record, frozen=True, kw_only=True, gc=False):
    """Nothing of an attempt lives any more: told by its own process, or its killer."""

    job: int
    token: int
    cause: str
    """``done_ok``, ``done_failed``, ``done_soft``, ``done_snoozed``: its child said so;
    ``itself``; ``supervisor``: killed by its own; ``nemesis``: from outside;
    ``host memory``: by its own, since the host was short of memory; ``orphaned``: with
    or after its supervisor; ``fence``: its lease had run out;
    ``host``."""
    guilt: tuple[str, ...] = ()
    """What it had done before: ``over_memory``, ``lied``."""
    gave_up: bool = False


class Gone(Record, frozen=True, kw_only=True, gc=False):
    """The last process that an attempt had left behind is gone, too."""

    job: int
    token: int


class Disturbed(Record, frozen=True, kw_only=True, gc=False):
    """A supervisor, or all of a host, could not do anything until a given time."""

    where: str
    """A run or a host."""
    until_s: float


class RunBegan(Record, frozen=True, kw_only=True, gc=False):
    """A supervisor's process began."""

    run: str
    host: str


class RunEnded(Record, frozen=True, kw_only=True, gc=False):
    """A supervisor's process is gone."""

    run: str
    how: str
    """``killed``, or its exit code."""


class Took(Record, frozen=True, kw_only=True, gc=False):
    """The store has committed a permit of one bucket, and what held for it then."""

    job: int
    token: int
    n: int
    """0: with the lease; else the attempt's own number, asked for within it."""
    bucket: str
    cost: int
    cap: int | None
    per_s: float | None
    burst: int | None
    closed: bool = False
    """Its quota or tenant was paused."""


class Rushed(Record, frozen=True, kw_only=True, gc=False):
    """A retry began that its budget should have held back."""

    job: int
    token: int
    text: str


class Held(Record, frozen=True, kw_only=True, gc=False):
    """A handler has learned that it has a permit that it asked for."""

    job: int
    token: int
    n: int


class Returned(Record, frozen=True, kw_only=True, gc=False):
    """A handler says that it does not need a permit any more."""

    job: int
    token: int
    n: int


class Blocked(Record, frozen=True, kw_only=True, gc=False):
    """The store has committed that nothing of a bucket begins before its time."""

    bucket: str
    after_s: float


class Downstream(Record, frozen=True, kw_only=True, gc=False):
    """The store has committed that a bucket's breaker has opened, or was closed."""

    bucket: str
    pause_s: float | None
    """None: it was closed."""


class Refilled(Record, frozen=True, kw_only=True, gc=False):
    """Rates are counted anew and blocks are void: somebody reset it, or set a clock."""

    quota: str
    """``""``: all of them."""


class Idled(Record, frozen=True, kw_only=True, gc=False):
    """A job had all its permits free, and a slot, for so long, and did not begin."""

    job: int
    seconds: float


class Dealt(Record, frozen=True, kw_only=True, gc=False):
    """The store has committed starts of one priority of a fair pool."""

    pool: str
    priority: int
    starts: tuple[tuple[str, int], ...]
    """By whose share they were taken from."""
    waits: tuple[tuple[str, float], ...]
    """Who had more jobs that nothing held back, with their weights."""


class TurnBack(Record, frozen=True, kw_only=True, gc=False):
    """A start was given back, or was taken out of turn: nobody owes for that."""

    pool: str
    priority: int
    who: str


class Overtook(Record, frozen=True, kw_only=True, gc=False):
    """In an aged pool a job was leased before one that had risen higher."""

    job: int
    text: str


class FlowStored(Record, frozen=True, kw_only=True, gc=False):
    """The store has committed a flow."""

    flow: int
    declared: NewFlow
    members: tuple[tuple[int, ...], ...]
    """The jobs of each step."""


class FlowCanceled(Record, frozen=True, kw_only=True, gc=False):
    """The store has committed that somebody cancels a flow."""

    flow: int


class FlowRetried(Record, frozen=True, kw_only=True, gc=False):
    """The store has committed that a flow goes on from what has failed.

    Before it stands an `Operated` for each member that runs again as it is.
    """

    flow: int
    members: tuple[tuple[int, ...], ...]
    """The jobs of each step from now on: those that nothing has replaced."""
    skipped: tuple[tuple[int, bool], ...]
    """Steps that stay skipped, and whether that is a failure."""
    is_whole: bool
    """All that has failed runs again, not only some jobs."""


class Dropped(Record, frozen=True, kw_only=True, gc=False):
    """A member of a flow was canceled for what became of the flow, or for its time."""

    job: int


class Approved(Record, frozen=True, kw_only=True, gc=False):
    """Somebody has approved the member of an external step."""

    job: int


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind's jobs may spend, as its application says."""

    max_attempts: int
    max_crashes: int
    max_lost: int
    max_interruptions: int = 20
    crash_window_s: float = 72 * 3600.0
    never_again: bool = False
    """At most once: dead when an end is unknown."""
    timeout_s: float | None = None
    heartbeat_timeout_s: float | None = None


class FinalJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands at the end, or stood when it was deleted."""

    job: int
    kind: str
    call: str
    state: str
    attempt: int
    failures: int
    crashes: int
    interruptions: int
    recoveries: int
    max_attempts: int | None = None
    attempts: tuple[tuple[int, str], ...] = ()
    """Token and outcome of the stored attempts, none of which succeeded."""


class FinalFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as it stands at the end."""

    flow: int
    state: str
    ending: str | None
    """Why nothing more of it was to begin: ``fail``, ``cancel``."""
    is_over: bool
    steps: tuple[tuple[str, bool], ...]
    """Of each step its state, and whether it has failed."""


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """How long jobs that are over are kept."""

    kept_s: dict[str, float]
    """By state."""
    store_ms: int
    """The store's clock at the end of everything."""
    late_s: float
    """A job may be there for so much longer."""
    early_s: float = 0.0
    """It may go so much sooner: its end was so long ago when it was written."""


class History(msgspec.Struct, kw_only=True):
    """A whole run."""

    shared: bool
    """Leases end by time."""
    records: list[Record] = []
    jobs: list[FinalJob] = []
    flows: list[FinalFlow] = []
    budgets: dict[str, Budgets] = {}
    """By kind."""
    stale: int | None = None
    """Refused settlements, as the store has counted them; None: unknown."""
    quiet: bool = True
    """The faults ended, and there was time to finish everything."""
    keeping: Keeping | None = None
    """None: nothing is deleted."""
    litter: list[str] = []
    """What was left of processes, leases and files after the end."""
    broken: list[str] = []
    """Uncaught exceptions."""
    wrong_ticks: list[str] = []
    """What was wrong with schedules."""
    permits_left: list[str] = []
    """Permits that somebody holds after the end."""
    calm: bool = False
    """Nothing goes wrong but what jobs do."""
    ordered: bool = False
    """The records stand in the very order in which things happened."""
    excused: bool = False
    """A clock jumped, a host slept or the kernel let nothing die: leases of several
    hosts may overlap, within their rule."""

    def of(self, kind: type[R]) -> list[R]:
        """Return the records of one kind, in order."""
        return [record for record in self.records if type(record) is kind]

    def of_job(self, job: int) -> list[Record]:
        """Return everything that is known of a job, in order."""
        return [r for r in self.records if getattr(r, "job", 0) == job]
