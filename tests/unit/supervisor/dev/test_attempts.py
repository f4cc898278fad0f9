"""What becomes of attempts that run in the supervisor's own process."""

import os
from types import SimpleNamespace

import pytest

from jobpool import JobPool, current
from jobpool.core.application import reports
from jobpool.core.application.app_report import AppReport
from jobpool.core.config.settings import Settings
from jobpool.core.events.figures import AttemptUnsuccessful, TickBegun, TickEnded
from jobpool.core.events.jobs import JobEnded, JobSucceeded
from jobpool.core.jobs.job import JobState, Lease, Scheduled
from jobpool.core.jobs.outcome import Outcome
from jobpool.supervisor.dev.application import with_all_pools
from jobpool.supervisor.dev.attempts import Attempts
from jobpool.supervisor.dev.limits import LimitWatch
from jobpool.supervisor.machine import commands as cmd
from jobpool.testing import FakeClock

TOKEN = 70


@pytest.fixture
def rig():
    """Attempts whose commands and events are kept, and their application."""
    jobs, clock, left, events = JobPool(), FakeClock(), [], []
    observer = SimpleNamespace(observe=events.append, hears=lambda _kind: True)

    def run(**job):
        report = AppReport(handlers=tuple(jobs.handler_specs()), version="1")
        settings = Settings(store="sqlite:////x", app="x", app_directory="/", pools=())
        attempts = Attempts(
            jobs,
            with_all_pools(settings, report),
            report,
            run_id="own",
            use=lambda question: question(None),
            leave=left.extend,
            watch=watch,
            observer=observer,
            clock=clock,
        )
        rig.attempts = attempts
        lease = {"id": 7, "kind": "x", "pool": "io", "payload": b"{}", "attempt": 1}
        attempts.run(Lease(token=TOKEN, **(lease | job)))
        (settlement,) = (
            one
            for command in left
            if isinstance(command, cmd.Settle)
            for one in command.settlements
        )
        return settlement

    watch = LimitWatch(events.append, clock)
    rig = SimpleNamespace(jobs=jobs, run=run, watch=watch, left=left, events=events)
    yield rig
    reports.want(wanted=False)


def handler(rig, function):
    return rig.jobs.job("io", kind="x")(function)


def test_a_result_is_settled_without_a_figure_of_memory(rig):
    """Of the memory it is only known what the whole process takes."""
    handler(rig, lambda: 5)
    settlement = rig.run()
    assert (settlement.state, settlement.result) == (JobState.SUCCEEDED, b"5")
    assert settlement.evidence.peak_rss_bytes is None
    assert settlement.evidence.slot == "io/0"
    assert [type(one) for one in rig.left] == [cmd.NoteStart, cmd.Settle]
    assert [type(one) for one in rig.events] == [JobSucceeded]


def test_it_is_watched_while_it_runs_and_its_last_progress_is_written(rig):
    watched = []

    def works():
        watched.append(rig.watch._running.job.lease.id)
        current().heartbeat(progress=1)
        current().heartbeat(progress=2)

    handler(rig, works)
    rig.run()
    assert watched == [7]
    assert rig.watch._running is None
    assert [type(one) for one in rig.left] == [cmd.NoteStart, cmd.Record, cmd.Settle]
    assert rig.left[1].progress.progress == b"2"


def test_what_an_error_tracker_leaves_is_told_as_from_a_child(rig):
    """Each with the attempt that has left it, also if that has ended well."""

    def works():
        assert reports.are_wanted()
        for n, of_error in enumerate((False, True)):
            reports.hand_over(reports.Report(str(n), of_error=of_error))
        raise ValueError("no")

    handler(rig, works)
    rig.run(attempt=5)
    left, told, ended, *_ = rig.events
    assert isinstance(told, JobEnded)
    assert [one.id for one in left.reports] == ["0"]
    assert (ended.ended.id, ended.report.id) == (7, "1")
    assert reports.take() == []


def test_a_tick_has_begun_before_its_handler_does(rig):
    begun = []
    handler(rig, lambda: begun.extend(rig.events))
    tick = Scheduled("nightly", 0, "UTC", late_ms=0)
    rig.run(schedule=tick)
    assert [(type(one), one.tick) for one in begun] == [(TickBegun, tick)]
    assert [type(one) for one in rig.events] == [TickBegun, TickEnded, JobSucceeded]


@pytest.mark.parametrize("by", ["a second Ctrl-C", "its handler raised"])
def test_an_interrupted_handler_is_charged_no_failure(rig, by):
    """As by a second Ctrl-C; an interrupt that no handler hears does nothing.

    One that the handler raises itself is not said to be anybody's.
    """

    def works():
        if by == "a second Ctrl-C":
            rig.attempts.interrupt()
        raise KeyboardInterrupt

    handler(rig, works)
    settlement = rig.run()
    assert (settlement.state, settlement.outcome) == (
        JobState.PENDING,
        Outcome.INTERRUPTED,
    )
    assert not settlement.charge.failure
    assert by in settlement.evidence.reason
    rig.attempts.interrupt()


@pytest.mark.parametrize(("raises", "code"), [(False, b"0"), (True, b"1")])
def test_a_forked_copy_that_comes_back_from_the_handler_ends(rig, raises, code):
    """It would go on as a second process that runs jobs."""

    def works():
        copy = os.fork()
        if copy:
            return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
        if raises:
            raise KeyboardInterrupt
        return "in the copy"

    handler(rig, works)
    assert rig.run().result == code


def test_whatever_a_handler_raises_is_a_failure_of_its_own(rig):
    """Also what Python raises to end generators."""

    def works():
        raise GeneratorExit

    handler(rig, works)
    settlement = rig.run()
    assert settlement.outcome is Outcome.FAILED
    assert "GeneratorExit" in settlement.evidence.reason


@pytest.mark.parametrize(
    ("fails", "state"), [(True, JobState.CANCELED), (False, JobState.SUCCEEDED)]
)
def test_a_canceled_attempt_that_fails_is_canceled(rig, fails, state):
    """One that returns a result has succeeded, whoever wanted otherwise."""

    def works():
        rig.watch.canceled = frozenset({TOKEN})
        if fails:
            raise ValueError("too late")

    handler(rig, works)
    assert rig.run().state is state


def test_a_completed_attempt_waits_for_what_the_store_says(rig, monkeypatch):
    """Its transaction may not have been committed: till then nothing is reported."""
    monkeypatch.setattr(
        "jobpool.core.application.current._State.completer",
        SimpleNamespace(complete=lambda *_given: None),
    )
    handler(rig, lambda: current().complete("a connection"))
    settlement = rig.run()
    assert settlement.completed
    assert settlement.state is JobState.PENDING
    assert rig.events == []


def test_a_handler_that_raises_is_told_as_by_a_child(rig):
    def works():
        raise ValueError("no such page")

    handler(rig, works)
    settlement = rig.run()
    assert settlement.evidence.reason.startswith("raised ValueError: no such page")
    assert "in works" in settlement.evidence.traceback
    assert "run_attempt" not in settlement.evidence.traceback
    assert [type(one) for one in rig.events] == [JobEnded, AttemptUnsuccessful]


def test_an_attempt_that_cannot_be_read_here_is_left_to_others(rig):
    """Its data needs a codec that this application does not have."""
    handler(rig, lambda: 5)
    settlement = rig.run(codec="elsewhere")
    assert settlement.unknown_for_ms
    assert rig.events == []
