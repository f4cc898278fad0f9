"""What a demo tells of its hostile jobs while they run."""

from types import SimpleNamespace

from jobpool.cli.demo.progress import Contained, Progress
from jobpool.core.jobs.job import Attempt, Job, JobState
from jobpool.core.jobs.outcome import Outcome

KIND = "hostile.null_pointer"


def filled(record, **given):
    return record(**(dict.fromkeys(record.__struct_fields__) | given))


def test_an_attempt_that_ends_while_one_looks_is_told_with_the_end_of_its_job():
    """Once, and with the state that the job has then."""
    running = filled(Job, id=1, kind=KIND, attempt=2, state=JobState.LEASED)
    dead = filled(Job, id=1, kind=KIND, attempt=2, state=JobState.DEAD)
    ends = [filled(Attempt, attempt=n, outcome=Outcome.CRASHED) for n in (1, 2)]
    seen = iter([running, dead])
    store = SimpleNamespace(
        find=lambda wanted, limit: [next(seen)] if wanted.ids else [],
        attempts=lambda _id: ends,
        stats=list,
    )
    progress = Progress(store, SimpleNamespace(hostile_ids=[1]))
    told = [progress.sample().news for _ in range(3)]
    first = Contained(KIND, 1, Outcome.CRASHED)
    last = Contained(KIND, 2, Outcome.CRASHED, state=JobState.DEAD)
    assert told == [[first], [last], []]
