"""Supervisors enqueue what schedules say: each tick once, whoever lives."""

import signal

from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.store.records.operating import Filter
from support.site.supervising import PATIENCE_S, PRELUDE, Site
from support.waiting import wait_until

BEAT = """
@jobs.job("io", kind="beat")
def beat(word: str = "tick"):
    witness(word)
"""
SECONDLY = 'jobs.schedule("beat", beat.call(), every="1s", overlap="allow_all")\n'


def ticks_of(site, name):
    """Return a schedule's ticks, the oldest first."""
    return site.store.ticks(name)[::-1]


def test_each_tick_has_one_job_under_kills(tmp_path):
    """Three supervisors make the same steps; two of them are killed meanwhile."""
    with Site(tmp_path, BEAT + SECONDLY) as site:
        alive = site.start("io=2")
        doomed = [site.start("io=2"), site.start("io=2")]
        for number, victim in enumerate(doomed, 1):
            wait_until(
                lambda wanted=2 * number: len(ticks_of(site, "beat")) >= wanted,
                PATIENCE_S,
                "ticks",
            )
            victim.kill()
        wait_until(lambda: len(ticks_of(site, "beat")) >= 6, PATIENCE_S, "more ticks")
        site.store.pause_schedule("beat")
        ticks = ticks_of(site, "beat")
        times_ms = [tick.nominal_ms for tick in ticks]
        assert times_ms == list(range(times_ms[0], times_ms[-1] + 1, 1000))
        ids = [tick.job_id for tick in ticks]
        assert len(set(ids)) == len(ids)
        assert None not in ids
        assert {job.state for job in site.finish_all(ids)} == {"succeeded"}
        assert site.store.count(Filter()) == len(ids)
        assert alive.stop(signal.SIGTERM) == 0
        assert alive.events("alarm") == []


def test_a_deploy_changes_what_its_application_declares(tmp_path):
    """Old code that still runs changes nothing back, and brings nothing back."""
    old = BEAT + (
        'jobs.schedule("gone", beat.call("gone"), every="1h")\n'
        'jobs.schedule("kept", beat.call("kept"), every="1h")\n'
        'jobs.schedule("moved", beat.call("old"), every="1h")\n'
    )
    new = BEAT + (
        'jobs.schedule("kept", beat.call("kept"), every="1h")\n'
        'jobs.schedule("moved", beat.call("new"), every="2s")\n'
        'jobs.schedule("come", beat.call("come"), cron="@daily")\n'
    )
    with Site(tmp_path, old) as site:
        first = site.start("io=1")
        said = first.wait_event("schedules_changed")
        assert said["added"] == ["gone", "kept", "moved"]
        kept = site.store.schedules("kept")[0]
        (tmp_path / "jobs.py").write_text(PRELUDE + new)
        said = site.start("io=1").wait_event("schedules_changed")
        assert (said["added"], said["changed"], said["retired"]) == (
            ["come"],
            ["moved"],
            ["gone"],
        )
        first.send(signal.SIGHUP)
        wait_until(lambda: site.witnesses("new"), PATIENCE_S, "a tick of the new code")
        rows = {row.declared.name: row for row in site.store.schedules()}
        assert rows["gone"].retired_ms is not None
        assert rows["gone"].next_ms is None
        assert rows["kept"].since_ms == kept.since_ms
        assert site.witnesses("old") == []


def test_a_name_that_was_put_at_run_time_is_not_taken_over(tmp_path):
    """The log says so, once; the schedule of that name stays as it is."""
    with Site(tmp_path, BEAT + SECONDLY) as site:
        own = Declared(
            name="beat",
            kind="beat",
            pool="io",
            payload=b'{"word":"own"}',
            rule=Rule(every_ms=1000),
        )
        site.store.put_schedule(own)
        supervisor = site.start("io=1")
        said = supervisor.wait_event("schedule_refused")
        assert said["schedule"] == "beat"
        assert "give this one another name" in said["reason"]
        wait_until(lambda: site.witnesses("own"), PATIENCE_S, "its own tick")
        assert site.store.schedules("beat")[0].declared == own
        assert site.witnesses("tick") == []
