"""What all witnesses of a chaos run say, as one history for `invariants` to check.

Theory of operation. Three witnesses know nothing of each other: the handlers' own
marks, the database's account of itself, and the nemesis. Where they must
be joined, it is by token (marks and account), or by run, slot and time (account and
blows): a death from outside explains one charge and no second one.

An attempt begins when its child takes its ticket, and the handler's first mark comes a
moment later. A child that dies between has begun it all the same, and no mark says so.
Then something else must: a blow at its slot, a fence, or a cancellation.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.flow_accounts import Flows
from chaos.producing import Call
from jobpool.sandbox.runs.fence import RECENTLY_S
from jobpool.supervisor.maintenance.lease_renewal import RENEW_EVERY_S
from support.store import history as h

FAR_MS = 1 << 60
MS_NS = 1_000_000
STILL = "machine stood still"
AWAY = frozenset(("supervisor stopped beyond the TTL", "black hole", "outage", STILL))
"""What may keep a supervisor from renewing until its leases have run out."""
ACTION_OF = {"crashed": "die", "timed_out": "hang"}
HOGGING = frozenset(("hog", "burst"))
DEATHS = ("child killed", "child stopped for good")
POISON = frozenset(("segfault", "leave", "hog"))
ATTEMPTS_MAX, CRASHES_MAX, LOST_MAX = 5, 3, 5
BUDGET = h.Budgets(
    max_attempts=ATTEMPTS_MAX, max_crashes=CRASHES_MAX, max_lost=LOST_MAX
)


@dataclass
class Attempt:
    """One attempt as its own processes saw it."""

    job: int
    token: int
    attempt: int
    pid: int
    began_ns: int
    last_ns: int
    starts: int = 0
    action: str = ""
    action_ns: int = 0
    given: list[int] = field(default_factory=list)
    """What its arguments held of other jobs' results."""


@dataclass
class Lease:
    """One lease as the database saw it."""

    job: int
    token: int
    attempt: int
    run: str
    from_ms: int
    until_ms: int = FAR_MS
    outcome: str | None = None
    state: str = ""
    slot: str | None = None
    was_canceled: bool = False
    is_handed_back: bool = False
    blow: object = None
    """What killed it, if that was the nemesis."""


class Final(NamedTuple):
    """A row of `Place.read_final`."""

    job: int
    kind: str
    state: str
    attempt: int
    failures: int
    crashes: int
    interruptions: int
    recoveries: int
    max_attempts: int | None
    payload: bytes
    result: bytes | None
    step: int | None = None
    """Of a flow."""


class Tick(NamedTuple):
    """A row of the only schedule's ticks."""

    nominal_ms: int
    stored_ms: int
    state: str
    job: int | None

    def call(self):
        """Return the call that it stands for: its job is of that one alone."""
        at_ns = self.stored_ms * MS_NS
        return Call(at_ns, f"tick-{self.nominal_ms}", "stored", self.job, True)


@dataclass
class Accounts:
    """Everything that was witnessed."""

    shared: bool
    changes: list
    marks: list[str]
    blows: list
    calls: list
    lives: list
    """Of supervisors."""
    jobs: list[Final]
    stored_attempts: list[tuple[int, int, str]]
    permits_left: list[str]
    litter: list[str]
    broken: list[str]
    ticks: list[Tick] = field(default_factory=list)
    flows: Flows = field(default_factory=Flows)
    pauses: list[tuple[int, int]] = field(default_factory=list)
    """From when until when this machine ran nothing, in ns."""
    host_oom: bool = False
    """The kernel has killed a process on this machine for lack of memory."""
    attempts: dict[int, Attempt] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)

    def __post_init__(self):
        self.changes = sorted(set(self.changes))
        self.ticks.sort()
        self.calls += [tick.call() for tick in self.ticks if tick.job is not None]
        self.job_of = {job.job: job for job in self.jobs}
        self._learn_flows()
        self.attempts = read_marks(self.marks)
        self.leases = read_leases(self.changes)
        self.died_ms = {
            life.run: life.ended_ns // MS_NS for life in self.lives if life.run
        }
        self._explain_deaths()

    def _learn_flows(self):
        """Find out which jobs members are: who stores a flow is not told."""
        finals = [(job.job, self.call_of(job)) for job in self.jobs]
        self.flows.learn(finals)
        ids = self.flows.ids
        self.calls = [
            call if call.job else call._replace(job=ids.get(call.name, [0])[0])
            for call in self.calls
        ]
        self.calls += (
            Call(0, call, "unknown", 0, False)
            for _, calls in self.flows.of_adders()
            for call in calls
        )

    def call_of(self, job):
        """Return the name of the call that a job stems from."""
        return self.flows.call_of(job) or call_of(job.payload)

    def history(self):
        """Return the history of the whole run."""
        records = [*self.flows.records(), *self._database(), *self._handlers()]
        records += self._supervisors()
        records += [
            h.Called(
                at_s=call.at_ns / 1e9,
                call=call.name,
                answer=call.answer,
                job=call.job,
                created=call.created,
            )
            for call in self.calls
            if call.answer != "canceled"
        ]
        records.sort(key=lambda record: record.at_s)
        kinds = {job.kind for job in self.jobs}
        return h.History(
            shared=self.shared,
            records=records,
            jobs=list(self._finals()),
            flows=list(self.flows.finals()),
            budgets={kind: budget_of(kind) for kind in kinds},
            permits_left=[f"a permit is left: {one}" for one in self.permits_left],
            litter=self.litter,
            broken=self.broken,
        )

    def _finals(self):
        stored = defaultdict(list)
        for job, token, outcome in self.stored_attempts:
            stored[job].append((token, outcome))
        ticks = {tick.job: tick.call().name for tick in self.ticks}
        for job in self.jobs:
            values = job._asdict()
            for name in ("payload", "result", "step"):
                del values[name]
            call = ticks.get(job.job) or self.call_of(job)
            attempts = tuple(stored[job.job])
            yield h.FinalJob(call=call, attempts=attempts, **values)

    def _database(self):
        """Yield what the account says, in its order."""
        members = {job.job for job in self.jobs if job.step is not None}
        for change in self.changes:
            at_s = change.at_ms / 1e3
            if change.old_state == "leased" and change.token != change.old_token:
                yield self._settled(change)
            if change.state == "leased" and change.token != change.old_token:
                yield h.Granted(
                    at_s=at_s,
                    run=change.supervisor,
                    job=change.job,
                    token=change.token,
                    attempt=change.attempt,
                    store_ms=change.at_ms,
                )
            is_asked = change.cancel and not change.old_cancel
            is_at_once = change.old_state not in {None, "leased"}
            is_dropped = is_at_once and change.state == "canceled"
            if is_at_once and change.state == "succeeded":
                yield h.Approved(at_s=at_s, job=change.job)
            elif is_dropped and change.job in members:
                yield h.Dropped(at_s=at_s, job=change.job)
            elif is_asked or is_dropped:
                yield h.Operated(
                    at_s=at_s,
                    job=change.job,
                    what="cancel",
                    before=change.old_state,
                    after=change.state,
                )

    def _settled(self, change):
        lease = self.leases[change.old_token]
        is_dead = self.died_ms.get(lease.run, FAR_MS) <= lease.until_ms
        is_others = lease.outcome == "lost" or (lease.is_handed_back and is_dead)
        return h.Settled(
            at_s=change.at_ms / 1e3,
            by="another" if is_others else lease.run,
            job=change.job,
            token=lease.token,
            receipt="accepted",
            outcome=lease.outcome,
            state=change.state or "deleted",
            changed=True,
            holder=lease.run,
            holder_until_ms=0 if self.may_lapse(lease) else FAR_MS,
            store_ms=change.at_ms,
            canceled=bool(change.old_cancel),
            presumed=lease.outcome == "lost",
        )

    def _explain_deaths(self):
        """Match each death caused by the nemesis to the one lease charged for it."""
        charged, fenced = [], []
        for lease in self.leases.values():
            if lease.outcome == "interrupted":
                (fenced if self._may_be_fenced(lease) else charged).append(lease)
            elif self._is_anothers_doing(lease):
                charged.append(lease)
        deaths = [blow for blow in self.blows if blow.sort in DEATHS]
        # What a fence may have ended needs no such death, and comes last.
        explain_deaths(fenced, explain_deaths(charged, deaths))

    def _is_anothers_doing(self, lease):
        one, own = self.attempts.get(lease.token), ACTION_OF.get(lease.outcome)
        return own is not None and (one is None or one.action != own)

    def may_lapse(self, lease):
        """Say whether a lease may have expired, its supervisor being cut off."""
        return self.shared and any(self._blows_away(lease))

    def _may_be_fenced(self, lease):
        """Say whether it was held until a fence: one ends with the next renewal."""
        return self.shared and any(self._blows_away(lease, after_s=RENEW_EVERY_S))

    def _blows_away(self, lease, after_s=0.0):
        """Yield what may have kept its supervisor away then or shortly before."""
        for blow in self.blows:
            if (
                blow.sort in AWAY
                and blow.from_ns // MS_NS <= lease.until_ms
                and blow.until_ns // MS_NS + 1000 * after_s >= lease.from_ms
            ):
                yield blow

    def _died_after_a_fence(self, lease):
        """Say whether its child was killed so soon that a zygote may have done it.

        That time begins when the supervisor renews again, twice a second. It is not
        seen here, but what the supervisor was granted next, and did not hand back, is.
        """
        died_ms = lease.blow.from_ns // MS_NS
        for blow in self.blows:
            if blow.sort in AWAY and blow.from_ns // MS_NS <= died_ms:
                granted_ms = (
                    one.from_ms
                    for one in self.leases.values()
                    if one.run == lease.run
                    and not one.is_handed_back
                    and blow.until_ns // MS_NS <= one.from_ms <= died_ms
                )
                after_ms = died_ms - min(granted_ms, default=died_ms)
                if after_ms <= 1000 * (RECENTLY_S + RENEW_EVERY_S):
                    return self.shared
        return False

    def may_be_interrupted(self, lease):
        """Say whether a lease may have been ended through nobody's fault.

        By a fence. Or by the nemesis: for a while after a fence the sender of a SIGKILL
        is unknown, and between its ticket and its mark no attempt is charged.
        """
        if self.host_oom or self._may_be_fenced(lease):
            return True
        is_unseen = lease.token not in self.attempts
        return lease.blow is not None and (is_unseen or self._died_after_a_fence(lease))

    def _began_unseen(self, lease):
        """Say whether an attempt without marks may have begun, if no blow says so."""
        if lease.outcome == "canceled":
            return lease.was_canceled
        if lease.outcome != "interrupted" or not self.may_be_interrupted(lease):
            return False
        # A child begins one at a time: with one that was ended, others go back.
        return not any(
            other is not lease
            and other.outcome == "interrupted"
            and other.blow is None
            and (other.run, other.slot) == (lease.run, lease.slot)
            and other.from_ms <= lease.until_ms
            and other.until_ms >= lease.from_ms
            for other in self.leases.values()
        )

    def may_burst(self, lease):
        """Say whether a memory hog may have hit its backstop and raised MemoryError.

        Its supervisor ends it long before, unless that is stopped meanwhile.
        """
        one = self.attempts.get(lease.token)
        return (
            one is not None
            and one.action == "burst"
            and any(
                blow.sort.startswith("supervisor stopped")
                and blow.run == lease.run
                and blow.from_ns <= one.action_ns
                and blow.until_ns >= one.began_ns
                for blow in self.blows
            )
        )

    def _handlers(self):
        """Yield what the handlers say, or could not say because their child died."""
        for lease in self.leases.values():
            one = self.attempts.get(lease.token)
            if one:
                began_ns, last_ns = one.began_ns, one.last_ns
            elif lease.blow:
                began_ns = last_ns = lease.blow.from_ns
            elif self._began_unseen(lease):
                began_ns, last_ns = lease.from_ms * MS_NS, lease.until_ms * MS_NS
            else:
                continue
            yield h.Started(
                at_s=began_ns / 1e9,
                run=lease.run,
                host="one",
                job=lease.job,
                token=lease.token,
                attempt=one.attempt if one else lease.attempt,
                child=lease.slot or "",
            )
            yield h.Ended(
                at_s=last_ns / 1e9,
                job=lease.job,
                token=lease.token,
                cause=self._cause(lease, one),
                guilt=("over_memory",) if one and one.action in HOGGING else (),
            )

    def _cause(self, lease, one):
        if lease.blow is not None:
            return "nemesis"
        if lease.outcome == "lost":
            return "orphaned"
        if lease.outcome == "canceled" and lease.was_canceled:
            return "supervisor"
        if lease.outcome == "interrupted" and self.may_be_interrupted(lease):
            return "fence"
        if self.may_burst(lease):
            return "done_failed"
        return {"stop": "done_ok", "raise": "done_failed", "die": "itself"}.get(
            one.action, "supervisor"
        )

    def _supervisors(self):
        for life in self.lives:
            if life.run:
                yield h.RunBegan(at_s=life.began_ns / 1e9, run=life.run, host="one")
                yield h.RunEnded(at_s=life.ended_ns / 1e9, run=life.run, how=life.how)
        for blow in self.blows:
            if blow.sort.startswith("supervisor stopped") and blow.run:
                yield h.Disturbed(
                    at_s=blow.from_ns / 1e9, where=blow.run, until_s=blow.until_ns / 1e9
                )


def budget_of(kind):
    """Return what a kind's jobs may spend."""
    if kind == "hang":
        return h.Budgets(
            max_attempts=2, max_crashes=CRASHES_MAX, max_lost=LOST_MAX, timeout_s=0.7
        )
    if kind == "once":
        return h.Budgets(
            max_attempts=ATTEMPTS_MAX,
            max_crashes=CRASHES_MAX,
            max_lost=LOST_MAX,
            never_again=True,
        )
    return BUDGET


def call_of(payload):
    """Return the name of the call that a job's arguments carry."""
    return json.loads(payload)["call"]


def read_marks(lines):
    """Collect the marks of each attempt."""
    found = {}
    for line in lines:
        what, *numbers = line.split()
        job, token, attempt, pid, at_ns = map(int, numbers)
        one = found.get(token)
        if one is None or one.job != job:
            # Two jobs under one token are told apart, and are one too many.
            key = token if one is None else -len(found)
            one = found[key] = Attempt(job, token, attempt, pid, at_ns, at_ns)
        one.last_ns = max(one.last_ns, at_ns)
        one.starts += what == "start"
        if what.startswith("given="):
            one.given.append(int(what.removeprefix("given=")))
        elif what not in {"start", "tick"}:
            one.action, one.action_ns = what, at_ns
    return found


def read_leases(changes):
    """Follow each lease from its grant to its end."""
    leases = {}
    for change in changes:
        if change.old_token is not None and change.token != change.old_token:
            lease = leases[change.old_token]
            lease.until_ms, lease.state = change.at_ms, change.state
            lease.slot, lease.was_canceled = change.slot, bool(change.old_cancel)
            lease.is_handed_back = (change.attempt or 0) < lease.attempt
            lease.outcome = None if lease.is_handed_back else change.outcome
        if change.token is not None and change.token != change.old_token:
            leases[change.token] = Lease(
                change.job,
                change.token,
                change.attempt,
                change.supervisor,
                change.at_ms,
            )
    return leases


def explain_deaths(leases, deaths):
    """Match deaths caused by the nemesis to the leases charged for them.

    An end may be stored long after the death. In one slot, therefore, each death is
    matched to the lease during which it fell and that ended first: no other choice
    explains more.

    Returns:
        The deaths that explain nothing.
    """
    unexplained, idle = defaultdict(list), []
    for lease in leases:
        unexplained[lease.run, lease.slot].append(lease)
    for death in sorted(deaths, key=lambda death: death.from_ns):
        from_ms, until_ms = death.from_ns // MS_NS, death.until_ns // MS_NS
        fitting = [
            lease
            for lease in unexplained[death.run, death.slot]
            if lease.blow is None
            and lease.from_ms <= until_ms + 1
            and lease.until_ms >= from_ms - 1
        ]
        if fitting:
            first = min(fitting, key=lambda lease: (lease.until_ms, lease.from_ms))
            first.blow = death
        else:
            idle.append(death)
    return idle
