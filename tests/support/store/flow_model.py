"""Any flow, with any ends of its members, beside a plain account of what is to come.

The account knows nothing of notes: it derives from the ends of members, each time anew,
how each step has ended, and so which members may have begun.
"""

import msgspec
from hypothesis import strategies as st

from jobpool.core.jobs.flow import Failure, Hook, NewStep, When
from support.store.flow_account import SEEN, Account
from support.store.flows import died, member, new_flow, step, unfinished
from support.store.storing import lease, succeeded

STEPS_MAX = 6


@st.composite
def flows(draw):
    """Draw a flow, and how many members its steps have."""
    count = draw(st.integers(1, STEPS_MAX))
    steps = []
    for number in range(count):
        before = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else ()
        edges = [(one, draw(st.sampled_from(When))) for one in sorted(before)]
        steps.append(step(number, *edges))
    hooks = draw(st.lists(st.sampled_from(Hook), max_size=3))
    steps += [
        NewStep(number=count + place, name=str(hook), hook=hook)
        for place, hook in enumerate(hooks)
    ]
    members = [draw(st.integers(0, 2)) for _ in steps]
    failure = draw(st.sampled_from(Failure))
    return new_flow(*steps, failure=failure), members


def live(store, clock, data):
    """Let a flow live as *data* draws it; assert that all of it ends, and as it should.

    Args:
        store: any, with one run.
        clock: the store's.
        data: of hypothesis.
    """
    flow, members = data.draw(flows())
    given = [member(n) for n, count in enumerate(members) for _ in range(count)]
    flow_id = store.enqueue_flow(flow, given).id
    account, was_canceled = Account(flow, members), False
    running, seen = [], set()
    for _ in range(100):
        what = data.draw(st.sampled_from(("lease", "end", "end", "fold", "people")))
        if what == "lease":
            running += _leased(store, account, seen, was_canceled)
        elif what == "end" and running:
            one = running.pop(data.draw(st.integers(0, len(running) - 1)))
            count = data.draw(st.sampled_from((0, 0, 0, 1, 2)))
            _settle(store, account, one, data.draw(st.booleans()), count)
        elif what == "fold":
            store.fold(data.draw(st.integers(1, 5)))
        elif what == "people":
            was_canceled |= _meddle(store, flow_id, data)
        clock.advance(1)
        if not running and not unfinished(store, flow_id):
            break
    store.resume_flow(flow_id)
    while running := [*running, *_leased(store, account, seen, was_canceled)]:
        while running:
            _settle(store, account, running.pop(), data.draw(st.booleans()))
    while store.fold().is_short:
        pass
    check(store, flow_id, account, was_canceled)


def _leased(store, account, seen, was_canceled):
    """Lease what may begin; assert that it may, and has not begun before."""
    found = lease(store, limit=3)
    for one in found:
        assert one.id not in seen, f"job {one.id} has begun twice"
        seen.add(one.id)
        number = store.flow_of(one.id).number
        if account.flow.steps[number].hook is not None:
            began = account.plain()
            is_bound = account.flow.failure is Failure.FAIL or was_canceled
            assert is_bound or all(began), f"hook {number} was early: {began}"
        else:
            assert account.may_begin(number), f"step {number} was early"
    return list(found)


def _settle(store, account, one, is_good, count=0):
    """End a member, which adds some others to its step if it succeeds."""
    number = store.flow_of(one.id).number
    added = tuple(job for _, job in [member(number)] * count)
    end = succeeded(one) if is_good else died(one)
    store.settle([msgspec.structs.replace(end, added=added)])
    account.ends[number].append(is_good)
    account.members[number] += count if is_good else 0


def _meddle(store, flow_id, data):
    """Do what people do; say whether the flow was canceled."""
    what = data.draw(st.sampled_from(("pause", "resume", "resume", "cancel")))
    if what == "cancel":
        return data.draw(st.integers(0, 3)) == 0 and store.cancel_flow(flow_id)
    (store.pause_flow if what == "pause" else store.resume_flow)(flow_id)
    return False


def check(store, flow_id, account, was_canceled):
    """Assert that a flow has ended whole, and as the account says."""
    found = store.flow(flow_id)
    assert unfinished(store, flow_id) == []
    assert found.row.finished_at_ms is not None, "nothing can finish the flow"
    assert {str(one.state) for one in found.steps} <= {"done", "skipped"}
    plain = [one for one in found.steps if one.hook is None]
    has_failed = any(one.failed for one in plain)
    end = "failed" if has_failed else "succeeded"
    assert found.row.state == ("canceled" if was_canceled else end)
    begun = [one.number for one in found.steps if one.hook and one.state == "done"]
    fits = {Hook.FINISH, Hook.FAILURE if end == "failed" or was_canceled else None}
    fits.add(None if end == "failed" or was_canceled else Hook.SUCCESS)
    assert begun == [
        one.number for one in account.flow.steps if one.hook in fits - {None}
    ]
    if account.flow.failure is Failure.CONTINUE and not was_canceled:
        expected = [SEEN[outcome] for outcome in account.plain()]
        assert [(one.state, one.failed) for one in plain] == expected
