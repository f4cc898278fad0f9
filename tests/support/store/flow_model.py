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
RETRIES_MAX = 3


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
    life = _Life(store, clock, data)
    for _ in range(RETRIES_MAX + 1):
        life.go_on()
        life.end()
        life.check()
        if not data.draw(st.booleans(), "retry") or not life.retry():
            break


class _Life:
    """A flow, and what is known of it."""

    def __init__(self, store, clock, data):
        self.store, self.clock, self.draw = store, clock, data.draw
        flow, members = self.draw(flows())
        given = [member(n) for n, count in enumerate(members) for _ in range(count)]
        self.id = store.enqueue_flow(flow, given).id
        self.account = Account(flow, members)
        self.was_canceled = False
        self.running = []
        self.begun = set()

    def go_on(self):
        """Let anything happen, for a while."""
        for _ in range(100):
            what = self.draw(st.sampled_from(("lease", "end", "end", "fold", "people")))
            if what == "lease":
                self._lease()
            elif what == "end" and self.running:
                which = self.draw(st.integers(0, len(self.running) - 1))
                self._settle(which, self.draw(st.sampled_from((0, 0, 0, 1, 2))))
            elif what == "fold":
                self.store.fold(self.draw(st.integers(1, 5)))
            elif what == "people":
                self._meddle()
            self.clock.advance(1)
            if not self.running and not unfinished(self.store, self.id):
                break

    def end(self):
        """Let all that may begin come to its end."""
        self.store.resume_flow(self.id)
        self._lease()
        while self.running:
            self._settle(-1)
            if not self.running:
                self._lease()
        while self.store.fold().is_short:
            pass

    def retry(self):
        """Retry it, now that it has ended; say whether it goes on."""
        expected = bool(self.account.anew())
        done = self.store.retry_flow(self.id)
        # Of what was canceled, a step without members may be all that goes on.
        assert done == expected or (done and self.was_canceled)
        if done:
            self.begun -= self.account.retry()
            self.was_canceled = False
        return done

    def _lease(self):
        """Lease what may begin; assert that it may, and has not begun before."""
        for one in lease(self.store, limit=3):
            assert one.id not in self.begun, f"job {one.id} has begun twice"
            self.begun.add(one.id)
            number = self.store.flow_of(one.id).number
            running = sum(place == number for place, _ in self.running)
            room = self.account.members[number] - len(self.account.ends[number])
            assert running < room, f"more of step {number} begin than it has"
            if self.account.flow.steps[number].hook is not None:
                began = self.account.plain()
                is_bound = self.account.flow.failure is Failure.FAIL
                is_early = not (is_bound or self.was_canceled or all(began))
                assert not is_early, f"hook {number} was early: {began}"
            else:
                assert self.account.may_begin(number), f"step {number} was early"
            self.running.append((number, one))

    def _settle(self, which, count=0):
        """End a member, which adds some others to its step if it succeeds."""
        number, one = self.running.pop(which)
        is_good = self.draw(st.booleans())
        added = tuple(job for _, job in [member(number)] * count)
        end = succeeded(one) if is_good else died(one)
        self.store.settle([msgspec.structs.replace(end, added=added)])
        self.account.ends[number][one.id] = is_good
        self.account.members[number] += count if is_good else 0

    def _meddle(self):
        """Do what people do."""
        what = self.draw(st.sampled_from(("pause", "resume", "resume", "cancel", "go")))
        if what == "pause":
            self.store.pause_flow(self.id)
        elif what == "resume":
            self.store.resume_flow(self.id)
        elif what == "cancel" and not self.draw(st.integers(0, 3)):
            self.was_canceled |= self.store.cancel_flow(self.id)
        elif what == "go" and self.store.flow(self.id).row.finished_at_ms is None:
            assert not self.store.retry_flow(self.id), "it has not ended"

    def check(self):
        """Assert that the flow has ended whole, and as the account says."""
        account, found = self.account, self.store.flow(self.id)
        assert unfinished(self.store, self.id) == []
        assert found.row.finished_at_ms is not None, "nothing can finish the flow"
        assert {str(one.state) for one in found.steps} <= {"done", "skipped"}
        plain = [one for one in found.steps if one.hook is None]
        end = "failed" if any(one.failed for one in plain) else "succeeded"
        end = "canceled" if self.was_canceled else end
        assert found.row.state == end
        fits = {Hook.FINISH, Hook.SUCCESS if end == "succeeded" else Hook.FAILURE}
        due = [one.number for one in account.flow.steps if one.hook in fits]
        done = [one.number for one in found.steps if one.hook and one.state == "done"]
        assert done == due
        for number in due:
            has_run = len(account.ends[number]) == account.members[number]
            assert has_run, f"not all of hook {number} has run"
        outcomes = account.plain()
        is_whole = account.flow.failure is Failure.CONTINUE or "failed" not in outcomes
        if is_whole and not self.was_canceled:
            assert [(one.state, one.failed) for one in plain] == [
                *map(SEEN.get, outcomes)
            ]
        good = [job for ends in account.ends.values() for job in ends if ends[job]]
        rows = self.store.step_results(self.id, None, 0, 1000)
        assert [row.job_id for row in rows] == sorted(good)
