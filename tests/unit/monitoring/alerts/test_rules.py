"""What each rule finds wrong, and what it does not, in a store."""

import pytest

from jobpool.core.config.options import ALERTS
from jobpool.core.config.settings import AlertSettings
from jobpool.core.config.sources import field_of
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.run_report import PoolReport, RunReport
from jobpool.manual.pages import text_of
from jobpool.monitoring.alerts.catalogue import RULES
from jobpool.monitoring.alerts.looking import look
from jobpool.monitoring.alerts.notes import Notes, read_notes, write_notes
from jobpool.monitoring.alerts.rules import SUBJECTS_MAX, folded, judge
from jobpool.monitoring.alerts.signals import Judgement, Verdict
from support.store.flows import step, store_flow
from support.store.scheduling import declared
from support.store.storing import ended, lease, new_job, succeeded

KIND = "shop.thumbnail"


class Eye:
    """Looks again and again, and remembers by its notes alone."""

    def __init__(self, store, clock, **rules):
        off = dict.fromkeys(field_of(AlertSettings, name) for name in RULES)
        self.settings = AlertSettings(**(off | rules))
        self.store, self.clock, self.notes = store, clock, Notes()

    def wrong(self):
        """Look; return what is wrong, with the sentence."""
        seen = look(self.store, self.clock.utc_ms(), self.notes, self.settings)
        verdicts, notes = judge(seen, self.notes, self.settings)
        self.notes = read_notes(write_notes(notes))
        assert self.notes == notes
        return {
            subject: verdict.summary
            for (_, subject), verdict in verdicts.items()
            if verdict.judgement is Judgement.WRONG
        }


def end(store, outcome=None, count=1, **how):
    """Let jobs end."""
    store.enqueue([new_job()] * count)
    granted = lease(store, limit=count)
    store.settle(
        [ended(one, outcome, **how) if outcome else succeeded(one) for one in granted]
    )


def test_no_supervisor_is_about_pools_with_due_jobs_that_nobody_serves(store, clock):
    """Pending ones whose time has come count; what is paused does not."""
    eye = Eye(store, clock, no_supervisor_s=120.0)
    store.enqueue([new_job(), new_job(pool="io", kind="shop.fetch")])
    assert [*eye.wrong()] == ["io"]
    store.pause(pool="io")
    assert eye.wrong() == {}
    clock.advance(61)
    assert eye.wrong() == {"cpu": "pool cpu has 1 due job, and no supervisor serves it"}
    store.renew("run-1", 60.0, anew=True)
    assert eye.wrong() == {}


def test_a_supervisor_with_a_long_lease_is_not_missed_between_two_renewals(
    store, clock
):
    """It is heard of only every third of that."""
    eye = Eye(store, clock, no_supervisor_s=120.0)
    store.enqueue([new_job()])
    store.renew("run-1", 300.0, anew=True)
    clock.advance(299)
    assert eye.wrong() == {}
    clock.advance(2)
    assert [*eye.wrong()] == ["cpu"]


def test_the_oldest_age_is_of_jobs_that_nothing_holds_back(store, clock):
    eye = Eye(store, clock, oldest_age_s=600.0)
    store.enqueue([new_job()])
    clock.advance(599)
    assert eye.wrong() == {}
    clock.advance(1)
    assert "has waited for 10m" in eye.wrong()["cpu"]
    store.pause(kind=KIND)
    assert eye.wrong() == {}


def test_depth_is_growth_over_half_an_hour_in_a_full_pool(store, clock):
    eye = Eye(store, clock, depth=100)
    full = RunReport(pools={"cpu": PoolReport(size=4, busy=4)})
    idle = RunReport(pools={"cpu": PoolReport(size=4, busy=3)})
    store.put_report("run-1", full)
    store.enqueue([new_job()] * 50)
    assert eye.wrong() == {}
    for _ in range(7):
        store.enqueue([new_job()] * 20)
        clock.advance(300)
        found = eye.wrong()
    assert "120 more due jobs than half an hour ago: 190" in found["cpu"]
    store.put_report("run-1", idle)
    assert eye.wrong() == {}


@pytest.mark.parametrize(
    ("rule", "count"),
    [("dead", 2), ("quarantined", 1)],
)
def test_dead_and_quarantined_jobs_are_news_for_a_quarter_of_an_hour(
    store, clock, rule, count
):
    eye = Eye(store, clock, **{rule: count})
    for _ in range(count):
        assert eye.wrong() == {}
        if rule == "dead":
            end(store, Outcome.FAILED, give_up=True)
        else:
            quarantine(store, clock)
    assert [*eye.wrong()] == [KIND]
    clock.advance(901)
    assert eye.wrong() == {}


def quarantine(store, clock):
    (job,) = store.enqueue([new_job(max_attempts=100)])
    while store.get(job.id).state != "quarantined":
        clock.advance(600)
        store.settle([ended(one, Outcome.CRASHED) for one in lease(store)])


def test_failures_are_judged_by_the_kinds_own_past(store, clock):
    """Thrice as many as in the last day; and too few of either say nothing."""
    eye = Eye(store, clock, failure_rate=3.0)
    eye.wrong()
    for _ in range(20):
        clock.advance(600)
        end(store, count=10)
        end(store, Outcome.FAILED, give_up=True)
        assert eye.wrong() == {}, "it always fails that often"
    for _ in range(3):
        clock.advance(60)
        end(store, Outcome.FAILED, count=10, give_up=True)
        found = eye.wrong()
    assert (
        "of the attempts of shop.thumbnail fail; in the last day it was" in found[KIND]
    )
    clock.advance(1800)
    assert eye.wrong() == {}, "hardly any has ended lately"


def test_interruptions_are_no_failures(store, clock):
    eye = Eye(store, clock, failure_rate=3.0)
    eye.wrong()
    clock.advance(60)
    end(store, count=60)
    eye.wrong()
    clock.advance(60)
    end(store, Outcome.INTERRUPTED, count=60)
    assert eye.wrong() == {}


def test_the_ratio_is_of_jobs_not_of_attempts(store, clock):
    eye = Eye(store, clock, ratio=0.1)
    eye.wrong()
    clock.advance(60)
    end(store, count=40)
    end(store, Outcome.FAILED, count=10)  # they are tried again
    assert eye.wrong() == {}
    clock.advance(1)
    end(store, Outcome.FAILED, count=7, give_up=True)
    assert "15% of the jobs of shop.thumbnail" in eye.wrong()[KIND]


def test_ticks_that_are_late_or_got_no_job_are_missed(store, clock):
    eye = Eye(store, clock, missed_ticks_s=300.0)
    store.put_schedule(declared())
    store.tick()
    (schedule,) = store.schedules()
    name = schedule.declared.name
    assert eye.wrong() == {}
    clock.advance((schedule.next_ms - clock.utc_ms()) / 1000 + 299)
    assert eye.wrong() == {}
    clock.advance(1)
    assert "late by 5m" in eye.wrong()[name]
    store.pause_schedule(name)
    assert eye.wrong() == {}


def test_flows_of_one_name_that_do_not_move_are_one(store, clock):
    eye = Eye(store, clock, stuck_flows_s=3600.0)
    for _ in range(2):
        store_flow(store, step(0), name="order")
    assert eye.wrong() == {}
    store.fold()
    clock.advance(3601)
    oldest = store.flow(1).row.ref
    assert eye.wrong() == {
        "order": f"nothing of 2 flows of order has moved for 1h00m: {oldest}"
    }


def test_what_is_wrong_everywhere_is_told_in_bounded_numbers():
    """Incidents that are open stay by themselves."""
    wrong = {("dead", f"k{n:03}"): Verdict(Judgement.WRONG, "dead") for n in range(200)}
    found = folded(wrong, {("dead", "k199"): None})
    assert len(found) == SUBJECTS_MAX + 1
    assert ("dead", "k199") in found
    assert found["dead", ""].summary.startswith("dead: also of 180 others, such as k0")
    few = {("dead", "k"): Verdict(Judgement.WRONG, "dead")}
    assert folded(few, {}) == few


def test_notes_that_cannot_be_read_are_none():
    """Garbage must not keep anybody from watching."""
    for text in ("", "{", '{"at_ms": "x"}', "[" * 10_000):
        assert read_notes(text) == Notes()


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_each_rule_has_its_option_and_its_section_of_the_manual(rule):
    """With what is safe and what is not."""
    assert rule.name in ALERTS
    text = text_of("alerts")
    _, heading, rest = text.partition(f"\n## {rule.section}\n")
    assert heading, rule.section
    section = rest.partition("\n## ")[0]
    assert f"`{rule.name}`" in section
    assert "\n- Safe: " in section
    assert "\n- Unsafe: " in section
