"""The history check of scripts/many-hosts must be able to fail at each rule."""

import importlib.util
from pathlib import Path

import pytest

from support.site.service import Pause

SCRIPT = Path(__file__).parents[3] / "scripts/lib/many_hosts/history.py"


def load():
    """Import the check, which belongs to a script and is in no package."""
    spec = importlib.util.spec_from_file_location("many_hosts_history", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


h = load()


def samples(first_ms, last_ms, until_ms=None):
    """Observations twice a second: until when a lease of 6 s was published."""
    return [(at, until_ms or at + 6000) for at in range(first_ms, last_ms, 500)]


def good():
    """Return a good history, in which much has happened.

    Job 1 has just run. Run a was killed in calm weather while it ran job 2. The
    supervisor of host h2 was stopped while it ran job 3, which another host began once
    the lease had expired: they overlap. Job 4 was interrupted.
    """
    return h.History(
        acknowledged={f"k{n}": n for n in (1, 2, 3, 4)},
        jobs=[
            h.Job(1, "k1", "succeeded", 1, 210),
            h.Job(2, "k2", "succeeded", 2, 7210),
            h.Job(3, "k3", "succeeded", 2, 25_210),
            h.Job(4, "k4", "succeeded", 2, 610),
        ],
        attempts=[
            h.Attempt(2, 1, 12, "lost", "a", 7050),
            h.Attempt(3, 1, 33, "lost", "c", 16_100),
            h.Attempt(4, 1, 14, "interrupted", "b", 410),
        ],
        lives=[
            h.Life(1, 11, "h1", 100, 200, is_whole=True),
            h.Life(2, 12, "h0", 500, 1190, is_whole=False),
            h.Life(2, 22, "h1", 7100, 7200, is_whole=True),
            h.Life(3, 33, "h2", 9000, 17_000, is_whole=True),
            h.Life(3, 43, "h1", 16_200, 25_200, is_whole=True),
            h.Life(4, 14, "h1", 300, 400, is_whole=False),
            h.Life(4, 24, "h1", 500, 600, is_whole=True),
        ],
        leases={
            "a": samples(0, 1200) + samples(1200, 9500, until_ms=7000),
            "b": samples(0, 30_000),
            "c": samples(0, 10_500)
            + samples(10_500, 18_500, until_ms=16_000)
            + samples(18_500, 30_000),
        },
        holders={11: "b", 12: "a", 22: "b", 33: "c", 43: "b", 14: "b", 24: "b"},
        kills=[h.Kill("a", 1200, is_calm=True)],
        pauses=[Pause("h2", 10_200, 18_300)],
        takeover_ms_max=7000,
        refused=1,
    )


def changed(field, place, **values):
    """Return the good history with one row of *field* changed."""
    history = good()
    rows = list(getattr(history, field))
    rows[place] = rows[place]._replace(**values)
    return history._replace(**{field: rows})


def added(**rows):
    """Return the good history with a row more in each of the fields named."""
    history = good()
    return history._replace(
        **{field: [*getattr(history, field), row] for field, row in rows.items()}
    )


def problems(history):
    return h.problems(history, left=[])


def test_a_good_history_has_no_problem():
    """Kills, a stopped supervisor and overlaps after expiry are no problem."""
    assert problems(good()) == []
    pairs = h.overlaps(good().lives)
    assert [(first.token, second.token) for first, second in pairs] == [(33, 43)]


def test_an_acknowledged_job_must_be_there():
    """The producer was told that it is stored."""
    history = good()
    assert problems(history._replace(jobs=history.jobs[:3])) == [
        "job 4 (key k4) was acknowledged and is lost"
    ]


def test_an_acknowledged_job_must_have_the_id_that_was_told():
    """Another job under the same key is not the promised one."""
    history = good()
    acknowledged = history.acknowledged | {"k4": 5}
    assert problems(history._replace(acknowledged=acknowledged)) == [
        "job 5 (key k4) was acknowledged and is lost",
        "job 4 (key k4) is there, but nobody enqueued it",
    ]


def test_an_enqueue_makes_one_job():
    """A second job under a key is invented, however well it has run."""
    job = h.Job(9, "k1", "succeeded", 1, 910)
    life = h.Life(9, 91, "h1", 800, 900, is_whole=True)
    assert problems(added(jobs=job, lives=life)) == [
        "job 9 (key k1) is there, but nobody enqueued it"
    ]


@pytest.mark.parametrize("state", ["leased", "dead", "quarantined", "canceled"])
def test_every_job_must_have_succeeded(state):
    """No handler fails here, so no other end is right."""
    assert problems(changed("jobs", 0, state=state)) == [f"job 1 is {state}"]


@pytest.mark.parametrize("outcome", ["crashed", "failed", "timed_out", "canceled"])
def test_no_attempt_is_blamed_for_what_its_host_suffered(outcome):
    """Lost and interrupted are the only outcomes that outside harm may cause."""
    assert problems(changed("attempts", 2, outcome=outcome)) == [
        f"attempt 1 of job 4 is {outcome}"
    ]


def test_an_attempt_is_settled_once():
    """Two ends of one attempt under different tokens do not add up."""
    again = h.Attempt(4, 1, 15, "interrupted", "b", 420)
    assert problems(added(attempts=again)) == [
        "job 4 succeeded in attempt 2, but the attempts settled before are [1, 1]"
    ]


def test_a_token_is_settled_once():
    """Not even in another attempt of its job."""
    history = changed("jobs", 3, attempt=3)
    again = h.Attempt(4, 2, 14, "interrupted", "b", 420)
    assert problems(history._replace(attempts=[*history.attempts, again])) == [
        "token 14 was settled 2 times"
    ]


@pytest.mark.parametrize("attempt", [1, 3])
def test_attempts_add_up(attempt):
    """Each attempt before the one that succeeded was settled, and no other."""
    assert problems(changed("jobs", 1, attempt=attempt)) == [
        f"job 2 succeeded in attempt {attempt}, but the attempts settled before are [1]"
    ]


def test_a_token_is_granted_for_one_job():
    """A holder of the token could settle the other job."""
    life = h.Life(1, 14, "h1", 50, 60, is_whole=False)
    assert problems(added(lives=life)) == ["token 14 ran 2 jobs"]


def test_a_token_begins_once():
    """A lease is one attempt, not two."""
    assert problems(changed("lives", 0, starts=2)) == [
        "token 11 of job 1 began 2 times"
    ]


def test_later_attempts_have_greater_tokens():
    """Otherwise an old holder could pass for a new one."""
    history = changed("jobs", 3, attempt=3)
    later = h.Attempt(4, 2, 13, "interrupted", "b", 420)
    assert problems(history._replace(attempts=[*history.attempts, later])) == [
        "job 4 had token 14 in attempt 1 and 13 in attempt 2"
    ]


def test_a_success_needs_a_handler_that_finished():
    """No other process can have done the work."""
    assert problems(changed("lives", 0, is_whole=False)) == [
        "job 1 succeeded, but no handler of it came to its end"
    ]


def test_a_process_that_outlives_its_settled_lease_is_an_overlap():
    """Its own supervisor has settled it while its handler lived on."""
    assert problems(changed("lives", 5, last_ms=550)) == [
        (
            "job 4 ran on h1 until 550 and on h1 from 500, before the first lease had "
            "expired"
        )
    ]


def test_no_overlap_before_the_first_lease_has_expired():
    """Then it was taken over too early as well."""
    assert problems(changed("attempts", 1, at_ms=15_900)) == [
        (
            "job 3 ran on h2 until 17000 and on h1 from 16200, before the first lease "
            "had expired"
        ),
        (
            "job 3 was taken from run c at 15900, which lived and whose lease had not "
            "expired"
        ),
    ]


def test_an_attempt_with_the_older_lease_may_begin_later_only_if_it_was_stopped():
    """The two are told apart by their tokens, not by which came first."""
    history = changed("lives", 3, began_ms=16_500)
    assert problems(history) == []
    assert problems(history._replace(pauses=[])) == [
        "job 3 began on h2 at 16500, after its lease had been taken at 16100",
        "job 3 lived on h2 until 17000, but its lease ended at 16000",
    ]


@pytest.mark.parametrize("kills", [[], [h.Kill("a", 6501)]])
def test_a_run_that_was_not_killed_keeps_its_jobs_while_its_lease_is_valid(kills):
    """Taking a dead run's jobs at once is right, a living one's is not."""
    history = changed("attempts", 0, at_ms=6500)
    assert problems(history) == []
    assert problems(history._replace(kills=kills)) == [
        (
            "job 2 was taken from run a at 6500, which lived and whose lease had not "
            "expired"
        )
    ]


def test_a_run_lease_that_was_never_seen_does_not_count_as_expired():
    """The check needs evidence, not the lack of it."""
    history = good()
    leases = {run: seen for run, seen in history.leases.items() if run != "c"}
    assert len(problems(history._replace(leases=leases))) == 2


def test_a_lease_may_be_taken_in_the_millisecond_of_its_runs_kill():
    """The order of the two is unknown then, and the run is dead."""
    history = changed("attempts", 0, at_ms=1200)
    assert problems(history) == []


def test_nothing_begins_after_its_job_has_ended():
    """An attempt that was given up must not begin again."""
    assert problems(changed("lives", 5, began_ms=610, last_ms=800)) == []
    assert problems(changed("lives", 5, began_ms=700, last_ms=800)) == [
        "job 4 began on h1 at 700, after it had ended at 610"
    ]


def test_a_handler_does_not_outlive_its_lease():
    """Its supervisor must have fenced itself, unless it was stopped."""
    assert problems(good()._replace(pauses=[])) == [
        "job 3 lived on h2 until 17000, but its lease ended at 16000"
    ]


def test_another_hosts_pause_excuses_no_overlap():
    """Only a stopped supervisor cannot fence itself."""
    assert problems(changed("pauses", 0, host="h1")) == [
        "job 3 lived on h2 until 17000, but its lease ended at 16000"
    ]


def test_a_stopped_supervisor_ends_expired_attempts_once_it_goes_on():
    """Its handlers may live only slightly longer."""
    assert problems(changed("lives", 3, last_ms=18_700)) == []
    assert problems(changed("lives", 3, last_ms=18_900)) == [
        "job 3 lived on h2 until 18900, but its lease ended at 16000"
    ]


def test_attempts_under_a_new_lease_may_live():
    """A run that has come back after its lease had expired works like any other."""
    job = h.Job(5, "k5", "succeeded", 1, 20_010)
    life = h.Life(5, 55, "h2", 18_600, 20_000, is_whole=True)
    history = added(jobs=job, lives=life)
    history.acknowledged["k5"] = 5
    history.holders[55] = "c"
    assert problems(history) == []


def test_a_killed_hosts_jobs_are_taken_within_the_bound():
    """In calm weather; the bound itself is allowed."""
    assert problems(changed("attempts", 0, at_ms=8200)) == []
    assert problems(changed("attempts", 0, at_ms=8201)) == [
        (
            "run a was killed at 1200, and its jobs were free only after 7001 ms, "
            "expected 7000 at most"
        )
    ]


def test_a_killed_host_whose_jobs_are_never_taken_is_a_problem():
    """A bound on nothing would always be met."""
    assert problems(added(kills=h.Kill("z", 9, is_calm=True))) == [
        "run z was killed at 9, and no job of it taken"
    ]


def test_in_a_storm_a_takeover_may_take_longer():
    """There may have been no other host, or the server was away."""
    history = changed("attempts", 0, at_ms=9100)
    storm = history._replace(kills=[h.Kill("a", 1200)])
    assert problems(storm) == []
    assert h.takeovers_ms(storm, is_calm=True) == {}
    assert list(h.takeovers_ms(storm, is_calm=False).values()) == [7900]


def test_a_takeover_lasts_until_the_last_job_is_free():
    """The slowest takeover counts."""
    history = added(attempts=h.Attempt(4, 2, 16, "lost", "a", 7800))
    assert list(h.takeovers_ms(history, is_calm=True).values()) == [6600]


def test_processes_that_are_left_are_a_problem():
    """Their pids are listed."""
    assert h.problems(good(), left=[70, 71]) == ["processes are left: 70, 71"]


def test_late_ends_are_those_after_the_job_was_taken():
    """The store must refuse their acknowledgements."""
    assert [life.token for life in h.late_ends(good())] == [33]


def test_a_late_acknowledgement_is_refused_and_counted():
    """Unless its supervisor was killed, and may have sent none."""
    history = good()._replace(refused=0)
    assert problems(history) == [
        (
            "handlers that ended after their jobs were taken: 1, but acknowledgements "
            "refused: 0"
        )
    ]
    killed = [*history.kills, h.Kill("c", 18_400)]
    assert problems(history._replace(kills=killed)) == []


def test_marks_of_one_file_give_each_attempts_life():
    """Marks of several attempts are in one file, in the order of their writing."""
    lines = [
        "start 1 11 h1 100",
        "start 2 12 h0 150",
        "alive 1 11 h1 120",
        "start 2 12 h0 160",
        "stop 1 11 h1 140",
    ]
    assert h.read_lives(lines) == [
        h.Life(1, 11, "h1", 100, 140, is_whole=True, starts=1),
        h.Life(2, 12, "h0", 150, 160, is_whole=False, starts=2),
    ]


def test_jobs_taken_before_a_kill_are_no_takeover_of_it():
    """A host that was away, lost its jobs, and came back, was killed later."""
    history = good()._replace(kills=[h.Kill("a", 7051), h.Kill("c", 16_099)])
    assert list(h.takeovers_ms(history, is_calm=False).values()) == [None, 1]
