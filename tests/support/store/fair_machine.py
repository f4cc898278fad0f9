"""Fair and aged pools of a store against a plain model: what waits, and what began.

The model keeps no virtual times. It knows what waits, and checks of every claim that it
took as many as there were, and the highest or those that have risen highest. While two
have waited, neither may have got ahead of the other by over a start of each.
"""

import contextlib
import dataclasses
from itertools import combinations

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
)

from jobpool.core.rules.quotas.definition import Quota
from jobpool.core.rules.quotas.shares import aged_ms
from jobpool.store.records.jobs import Receipt
from support.store.fairness import begin, publish_pool
from support.store.quotas import KIND, OTHER, stamped
from support.store.storing import ManualClock, handed_back, new_job, succeeded

TTL_S = 10**6
AGING_S = 60.0
SOON_S = 2.5
"""After this time a change holds everywhere."""
WEIGHTS = {"x": 1.0, "y": 3.0, KIND: 2.0}
"""Of tenants and kinds; of all others 1."""
NEW_JOBS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([KIND, KIND, OTHER]),
        "count": st.sampled_from([1, 3, 12]),
        "tenant": st.sampled_from([None, "x", "y", "z"]),
        "priority": st.sampled_from([0, 0, 1, 5]),
        "is_stamped": st.booleans(),
    }
)
RULES = [
    {"fair": "tenant", "is_aged": False, "is_capped": False},
    {"fair": "tenant", "is_aged": False, "is_capped": True},
    {"fair": "kind", "is_aged": False, "is_capped": False},
    {"fair": "", "is_aged": True, "is_capped": False},
    {"fair": "", "is_aged": True, "is_capped": True},
    {"fair": "tenant", "is_aged": True, "is_capped": False},
    {"fair": "tenant", "is_aged": True, "is_capped": True},
]


@dataclasses.dataclass
class ModelJob:
    id: int
    kind: str
    tenant: str | None
    priority: int
    run_at_ms: int
    waits: bool = True

    @property
    def age(self):
        return aged_ms(self.priority, self.run_at_ms, AGING_S * 1000)


class FairMachine(RuleBasedStateMachine):
    """Rules call the store and the model alike."""

    leases = Bundle("leases")

    def __init__(self):
        super().__init__()
        self.clock = ManualClock()
        self.exits = contextlib.ExitStack()
        self.open_one = self.make_store()
        self.stores = [self.open_one() for _ in range(2)]
        self.jobs = {}
        self.held = {}
        """Leases by job."""
        self.leads = {}
        """By priority and two shares that wait: by how much the starts of the one, by
        its weight, have exceeded those of the other since: least, now, most."""

    def teardown(self):
        for store in self.stores:
            store.close()
        self.exits.close()

    @initialize(first=st.sampled_from(RULES))
    def start(self, first):
        self.change(first)

    # -- what the model says ---------------------------------------------------------

    def who(self, job):
        return job.kind if self.rule["fair"] == "kind" else job.tenant or ""

    def is_capped(self, job):
        return self.rule["is_capped"] and job.kind == OTHER

    def waiting(self):
        return [job for job in self.jobs.values() if job.waits]

    def free(self):
        """Return the waiting jobs that nothing ever blocks."""
        return [job for job in self.waiting() if not self.is_capped(job)]

    def held_caps(self):
        """Return the tenants that have the permit of their cap."""
        jobs = (self.jobs[job_id] for job_id in self.held)
        return [job.tenant for job in jobs if self.is_capped(job)]

    def open(self):
        """Return the waiting jobs that nothing blocks now."""
        held = self.held_caps()
        return [
            job
            for job in self.waiting()
            if not self.is_capped(job) or job.tenant not in held
        ]

    def possible(self):
        """Count the jobs that can begin now."""
        capped = {job.tenant for job in self.open() if self.is_capped(job)}
        return len(self.free()) + len(capped)

    def turn(self, job):
        """Return by what jobs go before each other but for shares."""
        return job.age if self.rule["is_aged"] else -job.priority

    def check_order(self, granted, opened):
        """Nothing that was free is left that was to go before what was leased."""
        first = min(map(self.turn, self.free()), default=None)
        if first is None or not granted:
            return
        if self.rule["is_aged"] and self.rule["fair"]:
            oldest = min(job.age for job in opened)
            of_first = {job.priority for job in opened if job.age == oldest}
            assert any(job.priority in of_first for job in granted)
        else:
            assert max(map(self.turn, granted)) <= first

    def check_shares(self, granted, waited):
        """While two wait, neither gets ahead of the other by over a start of each."""
        shares = {(job.priority, self.who(job)) for job in self.free()} & waited
        kept = {}
        for (priority, one), (other_priority, other) in combinations(sorted(shares), 2):
            if priority != other_priority:
                continue
            least, lead, most = self.leads.get((priority, one, other), (0.0, 0.0, 0.0))
            for job in granted:
                if job.priority == priority and self.who(job) in {one, other}:
                    sign = 1 if self.who(job) == one else -1
                    lead += sign / self.weight(self.who(job))
            least, most = min(least, lead), max(most, lead)
            allowed = 1 / self.weight(one) + 1 / self.weight(other)
            assert most - least <= allowed + 1e-6, (one, other, least, most)
            kept[priority, one, other] = least, lead, most
        self.leads = kept

    def weight(self, who):
        return WEIGHTS.get(who, 1.0)

    # -- rules -----------------------------------------------------------------------

    @rule(
        target=leases,
        which=st.integers(0, 1),
        news=st.lists(NEW_JOBS, max_size=3),
        wants=st.lists(st.sampled_from([1, 1, 2, 5, 17]), min_size=1, max_size=5),
        seconds=st.sampled_from([0, 0.001, 7, 60, 400]),
    )
    def enqueue_and_lease(self, which, news, wants, seconds):
        for new in news:
            self.enqueue(1 - which, **new)
        self.clock.advance(seconds)
        return multiple(*(one for want in wants for one in self.lease(which, want)))

    def enqueue(self, which, kind, count, tenant, priority, is_stamped):  # noqa: PLR0917 - one for each field
        make = stamped if is_stamped else new_job
        new = make(kind, tenant=tenant, priority=priority)
        for made in self.stores[which].enqueue([new] * count):
            self.jobs[made.id] = ModelJob(
                made.id, kind, tenant, priority, self.clock.utc_ms()
            )

    def lease(self, which, want):
        waited = {(job.priority, self.who(job)) for job in self.free()}
        opened, possible = self.open(), self.possible()
        found = begin(self.stores[which], want, run_id=f"run-{which}")
        granted = [self.jobs[one.id] for one in found]
        assert all(job.waits for job in granted)
        for job in granted:
            job.waits = False
        self.held |= {one.id: one for one in found}
        assert len(granted) == min(want, possible)
        assert len(self.held_caps()) == len(set(self.held_caps()))
        self.check_order(granted, opened)
        if self.rule["fair"]:
            self.check_shares(granted, waited)
        return found

    @rule(which=st.integers(0, 1), granted=consumes(leases), has_begun=st.booleans())
    def settle(self, which, granted, has_begun):
        if self.held.get(granted.id) != granted:
            return
        del self.held[granted.id]
        end = succeeded if has_begun else handed_back
        assert self.stores[which].settle([end(granted)]) == [Receipt.ACCEPTED]
        if has_begun:
            del self.jobs[granted.id]
            return
        job = self.jobs[granted.id]
        job.waits = True
        at = job.priority, self.who(job)
        self.leads = {
            (priority, *pair): lead
            for (priority, *pair), lead in self.leads.items()
            if priority != at[0] or at[1] not in pair
        }

    @rule(to=st.sampled_from(RULES))
    def change(self, to):
        """Publish something else, once nothing runs."""
        self.rule, self.leads = to, {}
        self.stores[0].settle([succeeded(one) for one in self.held.values()])
        self.jobs = {job.id: job for job in self.waiting()}
        self.held.clear()
        cap = [Quota(name="one", concurrency=1, per="tenant")] * to["is_capped"]
        for number, store in enumerate(self.stores):
            publish_pool(
                store,
                *cap,
                fair=to["fair"],
                aging_s=AGING_S if to["is_aged"] else None,
                tenants={name: WEIGHTS[name] for name in ("x", "y")},
                kinds={KIND: WEIGHTS[KIND]},
                needs={OTHER: ["one"] * to["is_capped"]},
                run_id=f"run-{number}",
                host=f"host-{number}",
                ttl_s=TTL_S,
            )
        self.clock.advance(SOON_S)

    @rule(which=st.integers(0, 1))
    def open_again(self, which):
        self.stores[which].close()
        self.stores[which] = self.open_one()
