"""A job told in sentences, and the plots beside them."""

import pytest

from jobpool.core.jobs.job import Evidence, JobState, Settlement
from jobpool.core.jobs.memory_trail import Trail
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.usage.sketch import Counts, Measure
from jobpool.dashboard.screens.jobs.curve import LINE_WIDTH, curve_of, line_of_time
from jobpool.dashboard.screens.jobs.stack import stacks_of
from jobpool.dashboard.screens.jobs.story import span, story_of, times
from jobpool.monitoring.looking.reading import read
from support.store.storing import lease_one, new_job, succeeded

MIB = 2**20
SKETCHES = {Measure.MEMORY: {98: Counts(99), 110: Counts(1)}}


def end(store, state, outcome=Outcome.FAILED, **evidence):
    """End the next job's attempt."""
    granted = lease_one(store)
    store.settle(
        [
            Settlement(
                id=granted.id,
                token=granted.token,
                state=JobState(state),
                outcome=outcome,
                evidence=Evidence(**evidence),
            )
        ]
    )
    return granted.id


def told(store, job_id, sketches=SKETCHES):
    job = store.get(job_id)
    seen = read(
        store, job, job.created_at_ms + 1000, unredacted=False, with_payload=False
    )
    return story_of(seen, sketches, job.created_at_ms + 1000)


def test_a_poison_pill_is_told_by_its_limit_and_by_what_others_use(store):
    (one,) = store.enqueue([new_job(memory_bytes=512 * MIB)])
    for state in ("runnable", "runnable", "quarantined"):
        end(store, state, Outcome.OUT_OF_MEMORY, peak_rss_bytes=514 * MIB)
    story = told(store, one.id)
    assert story.lead.startswith("Its memory limit of 512\xa0MiB killed it three times")
    assert "peaked at about" in story.more[-1]
    assert story.more[-1].startswith("Attempts of its kind")  # its own as well
    assert story.next.startswith("Nothing happens until you act. Unless its memory")


def test_only_ends_of_the_last_kind_are_counted(store):
    """What happened before in another way is no part of the sentence."""
    (one,) = store.enqueue([new_job()])
    end(store, "runnable", Outcome.TIMED_OUT)
    end(store, "dead", Outcome.FAILED, reason="raised ValueError: no such page")
    story = told(store, one.id, {})
    assert story.lead == "It failed once."
    assert story.more == ("Raised ValueError: no such page.",)


@pytest.mark.parametrize("outcome", [one for one in Outcome if one != "succeeded"])
def test_every_way_to_end_has_its_words(store, outcome):
    (one,) = store.enqueue([new_job()])
    end(store, "dead", outcome)
    lead = told(store, one.id, {}).lead
    assert lead.endswith(" once.")
    assert outcome.value not in lead or outcome in {"failed", "canceled", "interrupted"}


def test_a_success_and_a_run_and_a_wait_are_told(store):
    (one,) = store.enqueue([new_job()])
    assert told(store, one.id).lead == "It runs as soon as a slot of its pool is free."
    granted = lease_one(store)
    assert told(store, one.id).lead == "Attempt 1 has just begun."
    store.settle([succeeded(granted, duration_s=3.5)])
    assert told(store, one.id).lead == "It succeeded, after 3.5\xa0s."


def test_a_job_that_is_held_up_says_by_what(store):
    (one,) = store.enqueue([new_job()])
    store.pause(kind="shop.thumbnail", who="ada", note="deploy")
    assert "kind shop.thumbnail is paused (by ada" in told(store, one.id).lead


@pytest.mark.parametrize(
    ("count", "words"),
    [
        *((1, "once"), (2, "twice"), (3, "three times"), (12, "twelve times")),
        *((13, "13 times"), (1300, "1,300 times")),
    ],
)
def test_counts_read_as_words(count, words):
    assert times(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0, "a second"), (1, "1 second"), (89, "89 seconds"), (660, "11 minutes")),
        *((5400, "2 hours"), (200_000, "2 days")),
    ],
)
def test_spans_are_rough(seconds, words):
    assert span(seconds) == words


def test_a_curve_ends_at_its_last_point_and_the_limit_is_in_it():
    curve = curve_of(Trail(100, ((0, 10), (50, 60), (100, 120))))
    assert curve.is_over
    assert curve.line.split()[0].startswith("0.0,")
    assert 0 < float(curve.end_y) < float(curve.limit_y) < 64
    assert not curve_of(Trail(100, ((0, 10), (0, 10)))).is_over


def test_attempts_stay_within_their_line_of_time(store):
    """However short they are, and however late the last was."""
    (one,) = store.enqueue([new_job()])
    end(store, "runnable")
    end(store, "dead")
    job, attempts = store.get(one.id), store.attempts(one.id)
    line = line_of_time(job, attempts, job.created_at_ms)
    assert len(line.bars) == 2
    assert all(0 <= float(b.x) + float(b.width) <= LINE_WIDTH for b in line.bars)
    (fresh,) = store.enqueue([new_job()])
    assert line_of_time(store.get(fresh.id), [], 0) is None


def test_a_dump_is_told_by_frames_the_outermost_first():
    dump = """Current thread 0x1 (most recent call first):
  File "/srv/site-packages/PIL/Image.py", line 2941 in new
  File "/srv/shop/pdf.py", line 88 in render

Thread 0x2 (most recent call first):
  File "/srv/shop/beat.py", line 3 in beat"""
    first, second = stacks_of(dump)
    assert [(f.place, f.name, f.is_library) for f in first.frames] == [
        ("shop/pdf.py:88", "render", False),
        ("PIL/Image.py:2941", "new", True),
    ]
    assert [f.name for f in second.frames] == ["beat"]
    assert stacks_of("<no Python frame>\nnothing") == []
