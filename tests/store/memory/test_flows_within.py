"""Flows within flows as they run, against the same flows by themselves.

What an inner flow does must not depend on the outer one: the same members begin, and
end alike. And whatever waits for the whole begins once, after all of them, if the inner
flow has ended so.
"""

import json
import random
from pathlib import Path

import pytest

from jobpool import UsageError
from jobpool.core.rules.admission import Admission
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from jobpool.store.records.operating import Filter
from support.store.client_fakes import pool_with
from support.store.flows import died
from support.store.storing import ManualClock, begin_run, lease, succeeded

WHENS = ("succeeded", "succeeded", "failed", "finished")
SEEDS = range(40)


class Runs:
    """An application on a store in memory, and what becomes of its flows."""

    def __init__(self):
        self.store = MemoryStore(
            MemoryDatabase("flows"),
            clock=ManualClock(),
            admission=Admission(),
            run_root=Path("/nonexistent"),
        )
        begin_run(self.store)
        self.jobs = pool_with(self.store)

        @self.jobs.job("cpu", kind="shop.resize")
        def work(label: str) -> str:
            return label

        self.call = work.call

    def run(self, flow, deadly):
        """Store a flow and let it end.

        Args:
            flow: whose members have labels for arguments.
            deadly: the labels of those that die; others succeed.

        Returns:
            Its handle, and the labels in the order in which their members began, each
            with the round.
        """
        run, begun = flow.enqueue(), {}
        for turn in range(100):
            if not (leases := lease(self.store)):
                break
            ends = []
            for one in leases:
                label = json.loads(self.store.payload(one.id))["label"]
                assert label not in begun
                begun[label] = turn
                result = json.dumps(label).encode()
                ends.append(
                    died(one) if label in deadly else succeeded(one, result=result)
                )
            self.store.settle(ends)
        while self.store.fold().is_short:
            pass
        found = self.store.find(Filter(flow=run.id), limit=1000)
        assert all(job.finished_at_ms is not None for job in found)
        return run, begun


@pytest.fixture
def runs():
    return Runs()


def drawn(runs, rng, label, depth=0, *, hooks=True, **options):
    """Return a flow of a few steps, some of them flows, and the labels of its members.

    Those of hooks are not among them.
    """
    flow, steps, labels = runs.jobs.flow(label, **options), [], []
    for number in range(rng.randint(1, 4)):
        after = rng.sample(steps, rng.randint(0, min(2, len(steps))))
        when = rng.choice(WHENS) if after else "succeeded"
        name = f"{label}{number}"
        if depth < 2 and rng.random() < 0.3:
            inner, more = drawn(runs, rng, name, depth + 1, hooks=hooks)
            steps.append(flow.add(inner, after=after, when=when))
            labels += more
        else:
            labels.append(name)
            steps.append(flow.add(runs.call(name), after=after, when=when))
    for hook in ("on_success", "on_failure", "on_finish") if hooks else ():
        if rng.random() < 0.4:
            getattr(flow, hook)(runs.call(f"{label}{hook}"))
    return flow, labels


def outer_of(runs, inner, when, **options):
    """Return a flow in which the inner one stands between two others, or beside one."""
    flow = runs.jobs.flow("outer", **options)
    before = flow.add(runs.call("before"))
    whole = flow.add(inner, after=before, when=when)
    return flow, whole


@pytest.mark.parametrize("seed", SEEDS)
def test_an_inner_flow_runs_as_it_does_by_itself(runs, seed):
    """Whatever fails in it; and what is after it begins as it has ended."""
    rng = random.Random(seed)
    inner, labels = drawn(runs, rng, "i", failure="continue")
    deadly = set(rng.sample(labels, rng.randint(0, min(2, len(labels)))))
    alone, expected = runs.run(inner, deadly)
    flow, whole = outer_of(runs, inner, "succeeded", failure="continue")
    for when in ("succeeded", "failed", "finished"):
        flow.add(runs.call(when), after=whole, when=when)
    run, begun = runs.run(flow, deadly)
    mine = {label for label in begun if label.startswith("i")}
    assert mine == set(expected)
    ended = alone.state.value
    assert begun.keys() - mine == {"before", ended, "finished"}
    last = max((begun[label] for label in labels if label in begun), default=0)
    assert last < begun[ended] == begun["finished"]
    assert run.state is alone.state


@pytest.mark.parametrize("seed", SEEDS)
def test_a_failure_within_ends_the_outer_flow_as_it_does_the_inner_one(runs, seed):
    """Unless something waits for it."""
    rng = random.Random(seed)
    inner, labels = drawn(runs, rng, "i", hooks=False)
    deadly = set(rng.sample(labels, rng.randint(0, min(2, len(labels)))))
    alone, expected = runs.run(inner, deadly)
    flow, whole = outer_of(runs, inner, "succeeded")
    flow.add(runs.call("next"), after=whole)
    run, begun = runs.run(flow, deadly)
    assert {label for label in begun if label.startswith("i")} == set(expected)
    assert ("next" in begun) is (alone.state == "succeeded")
    assert run.state is alone.state
    handled, whole = outer_of(runs, inner, "succeeded")
    for when in ("failed", "finished"):
        handled.add(runs.call(when), after=whole, when=when)
    run, begun = runs.run(handled, deadly)
    assert ("failed" in begun) is (alone.state == "failed")
    assert "finished" in begun
    assert run.state is alone.state


@pytest.mark.parametrize("seed", range(12))
def test_hooks_of_an_inner_flow_begin_as_they_do_by_themselves(runs, seed):
    """No failure within ends the outer flow before the hook that it is for."""
    rng = random.Random(seed)
    inner, labels = drawn(runs, rng, "i", hooks=False)
    for hook in ("on_success", "on_failure", "on_finish"):
        getattr(inner, hook)(runs.call(hook))
    deadly = set(rng.sample(labels, rng.randint(0, 1)))
    alone, expected = runs.run(inner, deadly)
    flow, _ = outer_of(runs, inner, "succeeded")
    run, begun = runs.run(flow, deadly)
    hooks = {label for label in begun if label.startswith("on")}
    assert hooks == {label for label in expected if label.startswith("on")}
    assert run.state is alone.state


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("deadly", "when"), [({"before"}, "succeeded"), ((), "failed")]
)
def test_of_an_inner_flow_that_is_not_reached_nothing_runs(runs, seed, deadly, when):
    """No compensation, no hook: as if it had not been enqueued."""
    inner, _ = drawn(runs, random.Random(seed), "i")
    flow, whole = outer_of(runs, inner, when, failure="continue")
    for one in ("succeeded", "failed", "finished"):
        flow.add(runs.call(one), after=whole, when=one)
    run, begun = runs.run(flow, deadly)
    assert set(begun) == {"before", "finished"} | ({"failed"} if deadly else set())
    assert run.state == ("failed" if deadly else "succeeded")


@pytest.mark.parametrize("seed", range(20))
def test_a_retry_runs_what_had_failed_within_and_what_is_after_it(runs, seed):
    rng = random.Random(seed)
    inner, labels = drawn(runs, rng, "i", hooks=False)
    deadly = set(rng.sample(labels, 1))
    flow, whole = outer_of(runs, inner, "succeeded", failure="continue")
    flow.add(runs.call("next"), after=whole)
    run, begun = runs.run(flow, deadly)
    if run.state == "succeeded":
        return
    assert "next" not in begun
    assert run.retry()
    again = set()
    while leases := lease(runs.store):
        again |= {json.loads(runs.store.payload(one.id))["label"] for one in leases}
        runs.store.settle([succeeded(one) for one in leases])
    assert deadly | {"next"} <= again
    assert run.state == "succeeded"


def test_a_compensation_that_was_not_needed_is_not_the_last_step(runs):
    """The result of the flow is that of the last step that ran."""
    flow = runs.jobs.flow("order")
    shipped = flow.add(runs.call("shipped"))
    flow.add(runs.call("refund"), after=shipped, when="failed")
    run, _ = runs.run(flow, ())
    assert run.result() == "shipped"


@pytest.mark.parametrize("seed", range(20))
def test_the_result_of_a_flow_is_found_within_as_it_is_without(runs, seed):
    """That of the one last step, by the handle of the whole, its name or none."""
    rng = random.Random(seed)
    inner, _ = drawn(runs, rng, "i")
    alone, _ = runs.run(inner, ())
    flow, whole = outer_of(runs, inner, "succeeded")
    run, _ = runs.run(flow, ())
    reads = [run.result, lambda: run.result(whole), lambda: run.result("i")]
    try:
        expected = alone.result()
    except UsageError:
        for read in reads:
            with pytest.raises(UsageError, match="have no other after them"):
                read()
        assert len(whole.lasts) > 1
    else:
        assert [read() for read in reads] == [expected] * 3
        assert len(whole.lasts) == 1
