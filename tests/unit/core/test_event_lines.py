"""Each event's line for people, word for word; and how much of a long text it shows."""

import json

import pytest

from jobpool.core.event_lines import LINE_MAX_BYTES, human_line, json_line
from jobpool.core.events.alerts import (
    AlertNotSent,
    IncidentEnded,
    IncidentOpened,
    NotWatched,
)
from jobpool.core.events.event import Event, Level
from jobpool.core.events.flow import (
    DownstreamClosed,
    DownstreamOpened,
    KindResumed,
    KindSlowed,
    QuotaDiffers,
    QuotasHeldBack,
    RateTooTight,
)
from jobpool.core.events.jobs import (
    JobCleared,
    JobCompleted,
    JobDead,
    JobEnded,
    JobFailure,
    JobOutput,
    JobQuarantined,
    JobSnoozed,
    JobSucceeded,
    JobSuspected,
    JobUnfit,
    MemorySoftPassed,
)
from jobpool.core.events.pools import (
    ChildEnded,
    ChildStarted,
    HostMemoryShort,
    ImportNotShared,
    MemoryAwaited,
    PoolReloaded,
    PoolResized,
    PoolsLeft,
    PoolUnused,
    SlotsBeyondMemory,
    ZygoteFailed,
)
from jobpool.core.events.schedules import (
    SchedulePaused,
    ScheduleRefused,
    SchedulesChanged,
    TicksMissed,
)
from jobpool.core.events.supervisor import (
    Alarm,
    Beside,
    IsolationReduced,
    LeaseFenced,
    LeaseRegained,
    LinesDropped,
    MetricsRefused,
    ReportsDropped,
    RestartNeeded,
    RunReclaimed,
    SpansDropped,
    StaleSettlement,
    StoreBack,
    StoreConcern,
    StoreTrouble,
    StoreWentBack,
    SupervisorDraining,
    SupervisorOutdated,
    SupervisorReady,
    SupervisorStopped,
    UnknownKind,
    UnknownKinds,
)
from jobpool.core.jobs.budget import Budget, Spent
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.circuit_breaker import BreakerState
from jobpool.core.safe_text import one_line

LINES = [
    (
        SupervisorReady(
            at_ms=0,
            pid=7,
            run_id="r",
            pools={"cpu": "2..8", "io": "4"},
            store="sqlite:////j.db",
            app="shop.jobs",
            version="1",
        ),
        ["supervisor 7 ready", "cpu=2..8 io=4", "sqlite:////j.db", "shop.jobs"],
    ),
    (
        SupervisorDraining(at_ms=0, pid=7, reason="SIGTERM", running=3, drain_s=25.0),
        ["supervisor 7 draining", "3 running get 25s", "SIGTERM"],
    ),
    (
        SupervisorDraining(
            at_ms=0, pid=7, reason="SIGTERM", running=3, drain_s=25.0, estimate_s=4.2
        ),
        ["supervisor 7 draining", "3 running get 25s, about 4.2s needed", "SIGTERM"],
    ),
    (
        SupervisorStopped(at_ms=0, pid=7, took_s=4.4),
        ["supervisor 7 drained", "0 handed back, 0 leases held", "after 4.4s"],
    ),
    (
        SupervisorStopped(at_ms=0, pid=7),
        ["supervisor 7 drained", "0 handed back, 0 leases held"],
    ),
    (
        SupervisorStopped(at_ms=0, pid=7, how="stopped", handed_back=2, leases_held=1),
        ["supervisor 7 stopped", "2 handed back, 1 leases held"],
    ),
    (
        IsolationReduced(
            at_ms=0,
            pools=("cpu", "io"),
            measure="signals",
            stops="all signals",
            why="old kernel",
        ),
        [
            "pools cpu io: signals not in force",
            "old kernel",
            "not prevented: all signals",
        ],
    ),
    (Alarm(at_ms=0, text="look"), ["alarm", "look"]),
    (
        RestartNeeded(at_ms=0, settings=("[alerts]", "[traces] otlp")),
        [
            "[alerts], [traces] otlp changed",
            "in force after a restart; until then as they were at the start",
        ],
    ),
    (
        RunReclaimed(
            at_ms=0, run_id="r", host="h", pid=7, handed_back=1, lost=2, killed=3
        ),
        [
            "supervisor 7 died",
            "1 jobs handed back, 2 lost",
            "3 processes killed",
            "host h",
        ],
    ),
    (
        RunReclaimed(
            at_ms=0,
            run_id="r",
            host="h",
            pid=7,
            handed_back=1,
            lost=2,
            killed=0,
            presumed=True,
        ),
        [
            "supervisor 7 presumed dead: its lease expired",
            "1 jobs handed back, 2 lost",
            "0 processes killed",
            "host h",
        ],
    ),
    (
        SupervisorOutdated(at_ms=0, pid=7, version="0.3.0", format=2),
        [
            "supervisor 7 outdated",
            "jobpool 0.3.0 knows formats up to 2",
            "features of a newer release are in use in the store",
            "it takes no more jobs and drains; upgrade jobpool here",
        ],
    ),
    (
        StoreTrouble(at_ms=0, error="disk full", again_in_s=2.0),
        ["store unavailable", "disk full", "next try in 2s"],
    ),
    (StoreBack(at_ms=0, away_s=61.0), ["store available again", "after 1m01s"]),
    (
        StoreWentBack(at_ms=0, error="it does not know this run any more"),
        ["store went back in time", "it does not know this run any more"],
    ),
    (
        StaleSettlement(at_ms=0, id=5, token=9, outcome=Outcome.FAILED),
        ["job 5 stale", "failed refused: its lease was superseded"],
    ),
    (
        StaleSettlement(at_ms=0, id=5, token=9, outcome=None),
        ["job 5 stale", "hand-back refused: its lease was superseded"],
    ),
    (
        LeaseFenced(at_ms=0, silent_s=40.04, ended=2, handed_back=1),
        [
            "lease not renewed",
            "could not renew for 40s",
            "2 jobs ended, 1 handed back, so that no other host runs them twice",
        ],
    ),
    (
        LeaseFenced(at_ms=0, silent_s=70.06, ended=2, handed_back=1, lapsed=True),
        [
            "lease expired",
            "2 jobs ended, 1 handed back: other hosts may have taken them",
            "last renewed 1m10s ago",
        ],
    ),
    (
        LeaseRegained(at_ms=0, away_s=9.96),
        ["lease renewed again", "jobs are leased again, after 10s"],
    ),
    (
        SpansDropped(at_ms=0, spans=3, reason="refused"),
        ["traces … 3 spans dropped", "refused"],
    ),
    (
        ReportsDropped(at_ms=0, reports=3, reason="refused"),
        ["sentry … 3 reports dropped", "refused"],
    ),
    (
        IncidentOpened(at_ms=0, rule="dead", subject="k", summary="3 jobs of k died"),
        ["alert dead", "3 jobs of k died"],
    ),
    (
        IncidentEnded(
            at_ms=0, rule="dead", subject="k", summary="3 jobs died", lasted_s=90.2
        ),
        ["alert dead is over", "after 1m30s", "3 jobs died"],
    ),
    (
        AlertNotSent(
            at_ms=0,
            alert="7-opened",
            receiver="webhook",
            reason="x.example:443 said 503",
            again_in_s=10.0,
        ),
        [
            "alert 7-opened was not sent",
            "webhook: x.example:443 said 503",
            "next try in 10s",
        ],
    ),
    (
        AlertNotSent(at_ms=0, alert="7-opened", receiver="command", reason="x"),
        ["alert 7-opened was not sent", "command: x", "it is not tried again"],
    ),
    (
        NotWatched(at_ms=0, reason="the store cannot be reached"),
        ["the queue is not watched", "the store cannot be reached"],
    ),
    (
        MetricsRefused(at_ms=0, reason="127.0.0.1:9464: Address already in use"),
        [
            "metrics cannot be served at 127.0.0.1:9464: Address already in use",
            "trying again until it is free",
        ],
    ),
    (
        StoreConcern(at_ms=0, text="a session is open"),
        ["store", "a session is open"],
    ),
    (
        UnknownKinds(
            at_ms=0, kinds=(UnknownKind("a", 2, 60.0), UnknownKind("b", 1, 0.5))
        ),
        [
            "jobs of unknown kinds are waiting",
            "a (2 jobs, oldest 1m00s), b (1 job, oldest 500ms)",
            "no handler here; deploy the application that has them",
        ],
    ),
    (
        SchedulesChanged(at_ms=0, added=("a", "b"), retired=("c",)),
        ["schedules changed", "added: a, b", "retired: c"],
    ),
    (
        SchedulesChanged(at_ms=0, changed=tuple("x" * 21)),
        ["schedules changed", f"changed: {', '.join('x' * 20)} and 1 more"],
    ),
    (
        ScheduleRefused(at_ms=0, schedule="a", reason="its name is taken"),
        ["schedule a not kept", "its name is taken"],
    ),
    (
        QuotasHeldBack(at_ms=0, kinds=("a", "b"), reason="host b is old"),
        ["waiting with quotas: a, b", "host b is old"],
    ),
    (
        QuotasHeldBack(at_ms=0, kinds=(), reason="host b is old"),
        ["waiting with quotas: all kinds", "host b is old"],
    ),
    (
        QuotaDiffers(at_ms=0, quota="stripe", reason="a says 1/s, b says 2/s"),
        ["quota stripe differs between supervisors", "a says 1/s, b says 2/s"],
    ),
    (
        DownstreamOpened(
            at_ms=0,
            quota="stripe",
            is_one_of_many=True,
            requests=20,
            failures=11,
            until_ms=30_000,
        ),
        [
            "breaker of quota stripe for one value opened",
            "11 of 20 requests have failed",
            "nothing begins for 30s, then one probe",
            "see: jobpool quotas stripe",
        ],
    ),
    (
        DownstreamClosed(at_ms=0, quota="stripe", is_one_of_many=False),
        ["breaker of quota stripe closed", "its probe was answered"],
    ),
    (
        RateTooTight(at_ms=0, kind="a", late_s=0.6, begin_within_s=0.525),
        [
            "no job of kind a begins",
            "lease and slot took 600ms, its rate allows 525ms",
            "make the store faster, or raise the quota's burst",
            "see: jobpool manual flow-control",
        ],
    ),
    (
        SchedulePaused(at_ms=0, schedule="a", reason="job 7 is dead"),
        ["schedule a paused", "job 7 is dead", "jobpool schedules resume a"],
    ),
    (
        TicksMissed(at_ms=0, schedule="a", missed=3),
        ["schedule a was missed", "3 ticks got no job"],
    ),
    (
        TicksMissed(at_ms=0, schedule="a", late_s=90.2),
        ["schedule a was missed", "a job was enqueued 1m30s late"],
    ),
    (
        ZygoteFailed(at_ms=0, pool="cpu", reason="no memory"),
        ["pool cpu cannot start children", "no memory"],
    ),
    (
        ZygoteFailed(at_ms=0, pool="cpu", reason="no memory", again_in_s=1.0),
        ["pool cpu cannot start children", "no memory", "next try in 1s"],
    ),
    (
        ImportNotShared(at_ms=0, pool="cpu", reason="it sees other variables"),
        ["pool cpu imports the application for itself", "it sees other variables"],
    ),
    (
        PoolResized(at_ms=0, pool="cpu", size_from=2, size_to=4, reason="jobs wait"),
        ["pool cpu resized", "2 to 4 children", "jobs wait"],
    ),
    (
        MemoryAwaited(
            at_ms=0,
            pool="cpu",
            id=5,
            kind="a",
            memory_bytes=1024,
            used_bytes=2048,
            budget_bytes=4096,
        ),
        [
            "pool cpu waits for memory",
            "job 5 may use 1KiB",
            "2KiB of memory_budget 4KiB is reserved",
            "a",
        ],
    ),
    (
        SlotsBeyondMemory(
            at_ms=0, slots=64, usable=37, budget_bytes=2**20, until="more later"
        ),
        [
            "37 of 64 slots can be used at once",
            "by their limits no more fit into memory_budget 1MiB",
            "more later",
        ],
    ),
    (
        HostMemoryShort(
            at_ms=0, available_bytes=2**20, reserve_bytes=2**21, pressure=12.4
        ),
        [
            "the host is short of memory: nothing begins beside what runs",
            "1MiB available, 2MiB are kept free",
            "memory pressure 12 %",
        ],
    ),
    (
        PoolReloaded(at_ms=0, pool="cpu"),
        ["pool cpu reloaded", "its children are replaced as they become idle"],
    ),
    (ChildStarted(at_ms=0, slot="cpu/1", pid=8), ["child cpu/1 started", "pid 8"]),
    (
        ChildEnded(at_ms=0, slot="cpu/1", pid=8, jobs=3, reason="recycled"),
        ["child cpu/1 ended", "pid 8", "3 jobs", "recycled"],
    ),
    (
        JobSucceeded(at_ms=0, id=5, kind="a", slot="cpu/1", attempt=1),
        ["job 5 succeeded", "cpu/1", "attempt 1", "a"],
    ),
    (
        JobSucceeded(
            at_ms=0,
            id=5,
            kind="a",
            slot="cpu/1",
            attempt=3,
            max_attempts=3,
            duration_s=0.0,
            peak_rss_bytes=0,
        ),
        ["job 5 succeeded", "cpu/1", "attempt 3", "0ms", "0B", "a"],
    ),
    (
        JobSucceeded(
            at_ms=0,
            id=5,
            kind="a",
            slot="cpu/1",
            attempt=4,
            max_attempts=3,
            duration_s=2.0,
        ),
        ["job 5 succeeded", "cpu/1", "attempt 4", "2s", "a"],
    ),
    (
        JobEnded(
            at_ms=0,
            id=5,
            kind="a",
            slot="cpu/1",
            attempt=1,
            outcome=Outcome.FAILED,
            state=JobState.PENDING,
            delay_s=30.0,
            error_class="ValueError",
        ),
        ["job 5 failed", "cpu/1", "attempt 1", "a", "ValueError, again in 30s"],
    ),
    (
        JobEnded(
            at_ms=0,
            id=5,
            kind="a",
            slot="cpu/1",
            attempt=1,
            outcome=Outcome.LOST,
            state=JobState.RUNNABLE,
            reason="gone",
            error_class="X",
        ),
        ["job 5 lost", "cpu/1", "attempt 1", "a", "gone, again at once"],
    ),
    (
        JobEnded(
            at_ms=0,
            id=5,
            kind="a",
            slot="cpu/1",
            attempt=6,
            outcome=Outcome.CRASHED,
            state=JobState.PENDING,
            max_attempts=5,
            reason="killed",
            delay_s=60.0,
            spent=(Spent(Budget.FAILURE, 1, 5), Spent(Budget.CRASH, 1, 3)),
            counters_reset=True,
        ),
        [
            "job 5 crashed",
            "cpu/1",
            "attempt 6",
            "a",
            "killed; failure 1 of 5, crash 1 of 3 (counters reset), again in 1m00s",
        ],
    ),
    (
        JobEnded(
            at_ms=0,
            id=5,
            kind="a",
            slot="cpu/1",
            attempt=12,
            outcome=Outcome.FAILED,
            state=JobState.DEAD,
            max_attempts=5,
            reason="raised X; failure 6 of 6 under X",
            spent=(Spent(Budget.FAILURE, 6, 6, "X"),),
            counters_reset=True,
        ),
        [
            "job 5 failed",
            "cpu/1",
            "attempt 12",
            "a",
            "raised X; failure 6 of 6 under X (counters reset), now dead",
        ],
    ),
    (
        JobEnded(
            at_ms=0,
            id=5,
            kind="a",
            slot="cpu/1",
            attempt=1,
            outcome=Outcome.CRASHED,
            state=JobState.QUARANTINED,
            max_attempts=5,
            duration_s=2.0,
        ),
        ["job 5 crashed", "cpu/1", "attempt 1", "a", "now quarantined"],
    ),
    (
        JobUnfit(
            at_ms=0,
            id=5,
            kind="a",
            slot="io/1",
            unknown_for_s=600.0,
            reason="the stored arguments do not fit a: no field",
        ),
        [
            "job 5 does not fit its handler here",
            "io/1",
            "a",
            "the stored arguments do not fit a: no field",
            "handed back; dead unless another supervisor can run it within 10m00s",
        ],
    ),
    (
        JobSnoozed(
            at_ms=0,
            id=5,
            kind="a",
            slot="io/1",
            attempt=2,
            snoozes=3,
            delay_s=300.0,
            reason="not yet: busy",
        ),
        [
            "job 5 snoozed",
            "io/1",
            "attempt 2",
            "a",
            "not yet: busy, again in 5m00s",
            "snooze 3 of 1,000 in a row",
        ],
    ),
    (
        JobSnoozed(
            at_ms=0,
            id=5,
            kind="a",
            slot="io/1",
            attempt=2,
            snoozes=7,
            throttles=2,
            delay_s=30.0,
            reason="throttled by stripe",
        ),
        [
            "job 5 snoozed",
            "io/1",
            "attempt 2",
            "a",
            "throttled by stripe, again in 30s",
            "throttled 2 of 20 times in a row",
        ],
    ),
    (
        JobCompleted(at_ms=0, id=5, token=9),
        ["job 5 succeeded", "completed by its own transaction"],
    ),
    (
        JobCompleted(at_ms=0, id=5, token=9, outcome=Outcome.CRASHED),
        [
            "job 5 succeeded",
            "completed by its own transaction",
            "the attempt then crashed; nothing is charged",
        ],
    ),
    (JobDead(at_ms=0, id=5, kind="a"), ["job 5 dead", "a", "see: jobpool show 5"]),
    (
        JobDead(at_ms=0, id=5, kind="a", reason="failure 5 of 5"),
        ["job 5 dead", "a", "failure 5 of 5", "see: jobpool show 5"],
    ),
    (
        JobQuarantined(at_ms=0, id=5, kind="a"),
        ["job 5 quarantined", "a", "see: jobpool show 5"],
    ),
    (
        JobQuarantined(at_ms=0, id=5, kind="a", reason="crash 3 of 3"),
        ["job 5 quarantined", "a", "crash 3 of 3", "see: jobpool show 5"],
    ),
    (
        JobOutput(at_ms=0, id=5, kind="a", slot="cpu/1", line="hello"),
        ["job 5 |", "hello"],
    ),
    (LinesDropped(at_ms=0, lines=12), ["log … 12 lines dropped"]),
    (
        PoolsLeft(at_ms=0, pools={"gpu": 1, "io": 2}),
        ["pools left to other supervisors: gpu (1 kind), io (2 kinds)"],
    ),
    (
        PoolUnused(at_ms=0, pool="cpuu", hint="did you mean 'cpu'?"),
        ["pool cpuu is used by no kind of the application", "did you mean 'cpu'?"],
    ),
    (
        MemorySoftPassed(
            at_ms=0,
            id=5,
            kind="a",
            slot="cpu/1",
            attempt=1,
            rss_bytes=2048,
            soft_bytes=1024,
            memory_bytes=4096,
            raised=True,
        ),
        [
            "job 5 over its soft memory limit",
            "cpu/1",
            "a",
            "2KiB of 1KiB; it is killed at 4KiB",
            "SoftMemory raised in the handler",
        ],
    ),
    (
        MemorySoftPassed(
            at_ms=0,
            id=5,
            kind="a",
            slot="cpu/1",
            attempt=1,
            rss_bytes=2048,
            soft_bytes=1024,
            memory_bytes=4096,
            raised=False,
        ),
        [
            "job 5 over its soft memory limit",
            "cpu/1",
            "a",
            "2KiB of 1KiB; it is killed at 4KiB",
        ],
    ),
    (
        JobSuspected(at_ms=0, id=5, kind="a", recoveries=2),
        [
            "job 5 suspected",
            "it was running when its supervisor or host died; it runs alone next",
            "deaths while it ran alone: 2",
            "a",
        ],
    ),
    (
        JobCleared(at_ms=0, id=5, kind="a"),
        ["job 5 cleared", "its attempt ended", "a"],
    ),
    (
        JobCleared(at_ms=0, id=5, kind="a", ran_s=10.0),
        ["job 5 cleared", "it has run alone for 10s", "a"],
    ),
    (
        KindSlowed(
            at_ms=0, kind="a", state=BreakerState.OPEN, crashes=20, again_in_s=300.0
        ),
        [
            "kind a open",
            "20 different jobs crashed in a row",
            "next try in 5m00s",
            "its other jobs wait; to resume: jobpool resume --kind",
        ],
    ),
    (
        KindResumed(at_ms=0, kind="a", reason="a job succeeded"),
        ["kind a resumed", "a job succeeded"],
    ),
]


@pytest.mark.parametrize(
    ("event", "parts"), LINES, ids=[parts[0] for _, parts in LINES]
)
def test_the_words_of_an_event(event, parts):
    """What happened, to which job, why, and what comes next.

    Nothing that is unknown.
    """
    assert human_line(event) == "00:00:00 " + "  ".join(parts)


def test_every_event_has_a_case_here():
    """A new event must get its words reviewed."""
    known = {type(event) for event, _ in LINES}
    core = {
        one
        for base in (Event, JobFailure, Beside)
        for one in base.__subclasses__()
        if one.__module__.startswith("jobpool.core")
        and one not in {JobFailure, Beside}
        and one.level > Level.NOTSET  # those are in no log
    }
    assert core == known


@pytest.mark.parametrize(
    ("char", "cap"), [("a", 4000), ("\x00", 1000), ("\U000e0001", 200)]
)
def test_a_text_is_as_long_as_the_line_allows(char, cap):
    """Cut after fewer characters, the more space each of them takes; and marked."""
    line = human_line(JobDead(at_ms=0, id=1, kind="k", reason=char * 5000))
    shown = one_line(char * cap, 5000)
    assert f"  k  {shown}… [{5000 - cap} more characters]  see: " in line
    assert len(line.encode()) <= LINE_MAX_BYTES


def test_many_long_texts_are_cut_to_forty():
    """And no more than twenty of them are shown."""
    event = IsolationReduced(
        at_ms=0, pools=("\x00" * 300,) * 21, measure="m", stops="s", why="w"
    )
    pools = json.loads(json_line(event))["pools"]
    assert pools == ["\x00" * 40 + "… [260 more characters]"] * 20


@pytest.mark.parametrize(("kinds", "more"), [(20, ""), (21, " and 1 more")])
def test_twenty_unknown_kinds_are_named(kinds, more):
    """The rest is counted."""
    unknown = tuple(UnknownKind(f"k{n}", 1, 2.0) for n in range(kinds))
    line = human_line(UnknownKinds(at_ms=0, kinds=unknown))
    assert f"k19 (1 job, oldest 2s){more}  no handler here" in line
