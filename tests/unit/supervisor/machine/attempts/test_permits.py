"""Permits of running handlers: a total table, waits that end, and nothing leaked."""

import itertools

import pytest

from jobpool.core.jobs.job import (
    PermitAnswer,
    PermitAsk,
    PermitReturn,
    RequestReport,
    Throttle,
)
from jobpool.core.rules.limits import Limits
from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.core.rules.quotas.definition import Quota
from jobpool.core.rules.quotas.gcra import DELAY_MAX_S
from jobpool.core.rules.quotas.rate import Rate
from jobpool.sandbox.protocol.messages import (
    AskPermit,
    BlockBucket,
    PermitAnswered,
    RequestEnded,
    ReturnPermit,
)
from jobpool.sandbox.protocol.verdict import KillReason
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts import permits
from jobpool.supervisor.machine.attempts.permits import (
    ANSWER_S,
    BLOCKS_FREE,
    BLOCKS_PER_S,
    CAP_AGAIN_S,
    PERMITS_MAX,
    RETRY_MAX_S,
    Permits,
)
from jobpool.supervisor.machine.attempts.requests import REPORT_S, SUMS_MAX
from jobpool.supervisor.machine.state.asking import (
    IMPOSSIBLE,
    PERMIT_ACTIONS,
    AskEvent,
    AskState,
)
from jobpool.supervisor.machine.state.slot import IGNORE, SlotState
from support.machine.world import World, pool

STRIPE = Quota(
    name="stripe",
    concurrency=2,
    wait_s=3.0,
    throttle_max_s=60.0,
    breaker=BreakerRule(),
)
CALLS = Quota(name="calls", rate=Rate(10.0, 1.0), burst=1)
DISK = Quota(name="disk", concurrency=2, host_only=True)
CELLS = list(itertools.product(AskState, AskEvent))


class Asking:
    """A world in which handlers ask for permits."""

    def __init__(self, size=2, jobs=2, **limits):
        quotas = (STRIPE, CALLS, DISK)
        self.world = World(
            pool("cpu", size), quotas=quotas, limits=Limits(**limits)
        ).up()
        self.jobs = [self.world.job() for _ in range(jobs)]
        self.world.notify()

    def slot(self, job):
        """Return the slot in which a job runs."""
        slots = self.world.machine.slots
        return next(
            one for one in slots if one.queue and one.queue[0].lease.id == job.id
        )

    def say(self, job, *frames):
        """Let a job's child say something."""
        self.world.step(inp.FramesArrived(self.slot(job).number, frames))

    def ask(self, job, n=1, *, quota="stripe", cost=1, wait_s=3.0):
        """Let a handler ask for a permit; return what is asked of the store."""
        self.say(job, AskPermit(job.token, n, quota, "acme", cost, wait_s))
        return PermitAsk(job.id, job.token, n, quota, "acme", cost)

    def give_back(self, job, n=1):
        """Let a handler return a permit."""
        self.say(job, ReturnPermit(job.token, n))

    def answer(self, ask, granted, **fields):
        """Let the store answer."""
        answers = [PermitAnswer(granted, **fields)]
        self.world.step(inp.PermitsAnswered([ask], answers))

    def asked(self):
        """Return what the store was asked for since the last call."""
        return [ask for one in self.world.took(cmd.TakePermits) for ask in one.asks]

    def returned(self):
        """Return what was given back to the store since the last call."""
        return [r for one in self.world.took(cmd.ReturnPermits) for r in one.returns]

    def told(self):
        """Return what children were told about permits since the last call."""
        frames = [one.frame for one in self.world.took(cmd.Send)]
        return [frame for frame in frames if isinstance(frame, PermitAnswered)]


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_of_a_request_meets_every_event(state, event):
    """The table has a cell for each, and each names an action that there is."""
    action = PERMIT_ACTIONS[state][event]
    handled = Permits(None, None, None)._actions
    assert action in {IGNORE, IMPOSSIBLE, *handled}


def test_a_granted_permit_is_the_childs_until_it_returns_it():
    """Asked once, answered once, returned once."""
    asking = Asking()
    job = asking.jobs[0]
    ask = asking.ask(job)
    assert asking.asked() == [ask]
    asking.answer(ask, granted=True)
    assert asking.told() == [PermitAnswered(1, granted=True)]
    asking.give_back(job)
    asking.give_back(job)
    assert asking.returned() == [PermitReturn(job.token, 1)]


def test_a_refused_request_is_made_again_when_the_store_says_so():
    """Neither earlier nor later; a cap's, of which nobody knows, soon."""
    asking = Asking()
    ask = asking.ask(asking.jobs[0])
    asking.asked()
    asking.answer(ask, granted=False, retry_in_s=0.4)
    asking.world.wait(0.39)
    assert asking.asked() == []
    asking.world.wait(0.02)
    assert asking.asked() == [ask]
    asking.answer(ask, granted=False)
    asking.world.wait(CAP_AGAIN_S + 0.001)
    assert asking.asked() == [ask]
    assert asking.told() == []


def test_a_request_waits_until_its_end_and_no_longer():
    """Then its child is told, and the handler snoozes."""
    asking = Asking()
    ask = asking.ask(asking.jobs[0], wait_s=1.0)
    until_s = asking.world.now_s + 1.0
    while not (told := asking.told()):
        for _ in asking.asked():
            asking.answer(ask, granted=False)
        asking.world.now_s = min(asking.world.machine.next_deadline_s(), until_s)
        asking.world.step(inp.Tick())
        assert asking.world.now_s <= until_s
    assert told == [PermitAnswered(1, granted=False)]
    assert asking.world.now_s == until_s
    asking.asked()
    asking.world.wait(1.0)
    assert asking.asked() == []


@pytest.mark.parametrize("limits", [{"timeout_s": 3.0}, {"soft_timeout_s": 2.0}])
def test_nobody_waits_for_a_permit_into_a_time_limit(limits):
    """The job snoozes before that: its attempt is not spent on waiting."""
    asking = Asking(**limits)
    ends_s = asking.world.now_s + min(limits.values())
    asking.ask(asking.jobs[0], wait_s=20.0)
    while not (told := asking.told()):
        for ask in asking.asked():
            asking.answer(ask, granted=False)
        asking.world.now_s = asking.world.machine.next_deadline_s()
        asking.world.step(inp.Tick())
        assert asking.world.now_s < ends_s
    assert told == [PermitAnswered(1, granted=False)]
    assert asking.world.now_s > ends_s - 1.0


def test_a_request_that_does_not_want_to_wait_gets_what_is_free():
    """The store's answer takes longer than no time; a refusal ends it at once."""
    asking = Asking()
    job = asking.jobs[0]
    first, second = (asking.ask(job, n, wait_s=0.0) for n in (1, 2))
    asking.world.wait(0.1)
    assert asking.told() == []
    asking.answer(first, granted=True)
    asking.answer(second, granted=False)
    asking.world.wait(0.0)
    assert [(one.n, one.granted) for one in asking.told()] == [(1, True), (2, False)]
    asking.ask(job, 3, wait_s=0.0)
    asking.world.wait(ANSWER_S + 0.001)
    assert asking.told() == [PermitAnswered(3, granted=False)]


def test_without_a_wait_of_its_own_a_request_waits_as_its_quota_says():
    """As configured here, which its child does not know."""
    asking = Asking()
    ask = asking.ask(asking.jobs[0], wait_s=None)
    asking.answer(ask, granted=False, retry_in_s=STRIPE.wait_s - 0.1)
    assert asking.told() == []
    other = asking.ask(asking.jobs[0], 2, wait_s=None)
    asking.answer(other, granted=False, retry_in_s=STRIPE.wait_s + 0.1)
    assert [one.n for one in asking.told()] == [2]


def test_what_cannot_be_granted_in_time_keeps_no_slot_waiting():
    """It is refused at once, with the time after which it is worth asking again."""
    asking = Asking()
    ask = asking.ask(asking.jobs[0], wait_s=3.0)
    asking.answer(ask, granted=False, retry_in_s=30.0)
    assert asking.told() == [PermitAnswered(1, granted=False, retry_in_s=30.0)]
    ask = asking.ask(asking.jobs[0], 2)
    asking.answer(ask, granted=False, retry_in_s=1e9)
    assert asking.told() == [PermitAnswered(2, granted=False, retry_in_s=RETRY_MAX_S)]


def test_what_never_can_be_granted_is_refused_for_ever():
    """Its job must not snooze for days."""
    asking = Asking()
    ask = asking.ask(asking.jobs[0], cost=9)
    asking.answer(ask, granted=False, stale=True)
    (told,) = asking.told()
    assert not told.granted
    assert "will never be granted" in told.refused
    asking.world.wait(5.0)
    assert asking.told() == []


def test_a_permit_that_comes_too_late_goes_back():
    """Its child has been told that there is none, and does not use it."""
    asking = Asking()
    ask = asking.ask(asking.jobs[0], wait_s=0.5)
    asking.asked()
    asking.world.wait(0.6)
    assert [one.granted for one in asking.told()] == [False]
    asking.answer(ask, granted=True)
    assert asking.returned() == [PermitReturn(ask.token, 1)]
    assert asking.told() == []


def test_a_child_may_give_up_what_it_has_asked_for():
    """While the store has the request, and while it waits."""
    asking = Asking()
    job = asking.jobs[0]
    first, second = asking.ask(job, 1), asking.ask(job, 2)
    asking.answer(second, granted=False)
    asking.give_back(job, 1)
    asking.give_back(job, 2)
    asking.asked()
    asking.world.wait(1.0)
    assert asking.asked() == []
    asking.answer(first, granted=True)
    assert asking.returned() == [PermitReturn(job.token, 1)]
    assert asking.told() == []


def test_a_returned_permit_lets_another_ask_at_once():
    """In the same turn, and after the return."""
    asking = Asking()
    first, second = asking.jobs
    held = asking.ask(first)
    waits = asking.ask(second)
    asking.answer(held, granted=True)
    asking.answer(waits, granted=False)
    asking.asked()
    asking.world.commands.clear()
    asking.give_back(first)
    assert asking.world.commands == [
        cmd.ReturnPermits([PermitReturn(first.token, 1)]),
        cmd.TakePermits([waits]),
    ]


def test_a_store_that_does_not_answer_is_asked_again():
    """As long as the handler waits; then that was all."""
    asking = Asking()
    ask = asking.ask(asking.jobs[0], wait_s=0.3)
    asking.world.step(inp.PermitsAnswered([ask], None))
    asking.asked()
    asking.world.wait(CAP_AGAIN_S + 0.001)
    assert asking.asked() == [ask]
    asking.world.wait(0.3)
    assert [one.granted for one in asking.told()] == [False]


def test_what_was_granted_long_ago_is_not_used():
    """A rate has counted it then: it goes back, and another is asked for."""
    asking = Asking()
    rate = asking.ask(asking.jobs[0], quota="calls")
    cap = asking.ask(asking.jobs[1])
    asking.asked()
    asking.world.wait(DELAY_MAX_S + 0.1)
    asking.answer(rate, granted=True)
    asking.answer(cap, granted=True)  # a cap counts it for as long as it is held
    assert [one.granted for one in asking.told()] == [True]
    asking.world.commands.clear()
    asking.world.wait(CAP_AGAIN_S + 0.001)
    assert asking.world.commands == [
        cmd.ReturnPermits([PermitReturn(rate.token, 1)]),
        cmd.TakePermits([rate]),
    ]
    asking.answer(rate, granted=True)
    assert [one.granted for one in asking.told()] == [True]


@pytest.mark.parametrize("wait_s", [0.01, 3.0])
def test_what_may_have_been_granted_unheard_goes_back(wait_s):
    """If the handler waits on, before it asks again."""
    asking = Asking()
    ask = asking.ask(asking.jobs[0], wait_s=wait_s)
    asking.world.step(inp.PermitsAnswered([ask], None))
    assert asking.returned() == []
    asking.asked()
    asking.world.wait(CAP_AGAIN_S + 0.001)
    assert asking.returned() == [PermitReturn(ask.token, 1)]
    assert asking.asked() == [ask] * (wait_s > CAP_AGAIN_S)


def test_with_the_end_of_its_attempt_a_request_is_forgotten():
    """However it ends: the store takes back what it held with its settlement."""
    asking = Asking()
    first, second = asking.jobs
    waits, killed = asking.ask(first), asking.ask(second)
    asking.answer(waits, granted=False)
    asking.world.done(asking.slot(first).number)
    asking.world.step(inp.CancelAsked((second.token,)))
    asking.told()
    asking.asked()
    asking.answer(killed, granted=True)
    asking.world.wait(5.0)
    assert asking.told() == asking.asked() == asking.returned() == []


def test_late_words_of_an_ended_attempt_concern_nobody():
    """A thread of its handler may have spoken just then; the next one is not killed."""
    asking = Asking(size=1, jobs=1)
    (old,) = asking.jobs
    new = asking.world.job()
    asking.world.done(0)
    assert asking.slot(new).state is SlotState.BUSY
    asking.world.step(
        inp.FramesArrived(
            0,
            [
                AskPermit(old.token, 1, "stripe", "", 1, 1.0),
                ReturnPermit(old.token, 1),
                BlockBucket(old.token, "stripe", "", 1.0),
            ],
        )
    )
    assert asking.slot(new).state is SlotState.BUSY
    assert asking.asked() == asking.returned() == []
    assert asking.world.took(cmd.BlockBuckets) == []


@pytest.mark.parametrize("numbers", [[1, 1], range(PERMITS_MAX + 1)])
def test_a_child_that_floods_is_ended(numbers):
    """Our own code asks once for each permit, and for a bounded number of them."""
    asking = Asking(jobs=1)
    (job,) = asking.jobs
    frames = [AskPermit(job.token, n + 1, "stripe", "", 1, 1.0) for n in numbers]
    slot = asking.slot(job)
    asking.say(job, *frames)
    assert slot.killed.reason is KillReason.PROTOCOL


def test_a_child_that_waits_for_a_permit_is_alive():
    """Its heartbeat is not missed meanwhile, and counts anew from the answer."""
    asking = Asking(jobs=1)
    (job,) = asking.jobs
    asking.ask(job, wait_s=3.0)
    running = asking.slot(job).queue[0]
    assert running.beat_s == asking.world.now_s + 3.0
    asking.world.wait(3.0)
    assert running.beat_s == asking.world.now_s


def test_what_a_server_says_is_passed_on_within_its_quotas_maximum():
    """And not without end."""
    asking = Asking(jobs=1)
    (job,) = asking.jobs
    for after_s in (30.0, 3600.0):
        asking.say(job, BlockBucket(job.token, "stripe", "acme", after_s))
    blocks = [one for c in asking.world.took(cmd.BlockBuckets) for one in c.blocks]
    assert blocks == [
        Throttle("stripe", "acme", 30_000),
        Throttle("stripe", "acme", 60_000),
    ]
    flood = [BlockBucket(job.token, "stripe", str(n), 1.0) for n in range(1000)]
    asking.say(job, *flood)
    assert len(asking.world.took(cmd.BlockBuckets)) == BLOCKS_FREE - 2
    asking.world.wait(1.0)
    asking.say(job, *flood)
    assert len(asking.world.took(cmd.BlockBuckets)) == BLOCKS_PER_S


def test_how_requests_end_is_reported_once_a_second_summed_by_attempt():
    """For quotas with a breaker, and of attempts that run; a flood has an end."""
    asking = Asking()
    first, second = asking.jobs
    for job, failed in ((first, True), (first, False), (second, True)):
        asking.say(job, RequestEnded(job.token, "stripe", "acme", failed))
    asking.say(first, RequestEnded(first.token, "calls", "", failed=True))
    asking.say(first, RequestEnded(second.token, "stripe", "acme", failed=True))
    asking.world.wait(REPORT_S - 0.01)
    assert asking.world.took(cmd.ReportRequests) == []
    asking.world.wait(0.02)
    (report,) = asking.world.took(cmd.ReportRequests)
    assert report.reports == [
        RequestReport("stripe", "acme", first.token, 2, 1),
        RequestReport("stripe", "acme", second.token, 1, 1),
    ]
    asking.world.wait(2 * REPORT_S)
    assert asking.world.took(cmd.ReportRequests) == []
    flood = range(SUMS_MAX + 10)
    asking.say(
        first,
        *(RequestEnded(first.token, "stripe", str(n), failed=True) for n in flood),
    )
    asking.world.wait(REPORT_S)
    (report,) = asking.world.took(cmd.ReportRequests)
    assert len(report.reports) == SUMS_MAX


def test_a_supervisor_that_ends_does_not_keep_what_it_has_to_report():
    """It may not have another second."""
    asking = Asking()
    job = asking.jobs[0]
    asking.say(job, RequestEnded(job.token, "stripe", "", failed=True))
    asking.world.step(inp.Drain("SIGTERM"))
    asking.world.wait(REPORT_S / 10)
    asking.say(job, RequestEnded(job.token, "stripe", "", failed=True))
    asking.world.wait(0.001)
    told = [one for c in asking.world.took(cmd.ReportRequests) for one in c.reports]
    assert sum(one.requests for one in told) == 2


def test_what_is_counted_here_alone_costs_no_query():
    """Granted while there is room, else when some comes back, or not in time."""
    asking = Asking()
    first, second = asking.jobs
    asking.ask(first, 1, quota="disk", cost=2)
    assert asking.told() == [PermitAnswered(1, granted=True)]
    asking.ask(second, 2, quota="disk", wait_s=3.0)
    asking.ask(second, 3, quota="disk", wait_s=0.5)
    asking.world.wait(1.0)
    assert asking.told() == [PermitAnswered(3, granted=False)]
    asking.give_back(first, 1)
    assert asking.told() == [PermitAnswered(2, granted=True)]
    asking.ask(second, 4, quota="disk", cost=3)
    assert "never be granted" in asking.told()[0].refused
    assert asking.asked() == asking.returned() == []


@pytest.mark.parametrize("crashes", [False, True])
def test_an_attempts_end_gives_back_what_is_counted_here_alone(crashes):
    """Its handler need not have returned it."""
    asking = Asking()
    first, second = asking.jobs
    asking.ask(first, 1, quota="disk", cost=2)
    asking.ask(second, 1, quota="disk")
    asking.told()
    if crashes:
        asking.world.died(asking.slot(first).number, signal=9)
    else:
        asking.world.done(asking.slot(first).number)
    asking.world.wait(CAP_AGAIN_S + 0.001)
    assert asking.told() == [PermitAnswered(1, granted=True)]


def test_the_module_has_bounds_that_its_children_keep():
    """A child holds fewer than what counts as a flood."""
    from jobpool.sandbox.child.channel import PERMITS_MAX as OF_A_CHILD

    assert permits.PERMITS_MAX >= 2 * OF_A_CHILD
