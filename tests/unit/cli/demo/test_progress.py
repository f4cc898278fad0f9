"""What a demo tells of its hostile jobs while they run."""

from types import SimpleNamespace

from jobpool.cli.demo.progress import Contained, Progress
from jobpool.core.jobs.job import Attempt, Job, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.records.reading import StatRow

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


class EndsMeanwhile:
    """A store whose only job ends once anybody has looked at it."""

    state = JobState.LEASED

    def look(self):
        state, self.state = self.state, JobState.DEAD
        return state

    def find(self, wanted, limit):
        if not wanted.ids:
            return []
        return [filled(Job, id=1, kind=KIND, attempt=1, state=self.look())]

    def attempts(self, _id):
        return [filled(Attempt, attempt=1, outcome=Outcome.CRASHED)]

    def stats(self):
        return [filled(StatRow, pool="cpu", kind=KIND, jobs=1, state=self.look())]


def test_once_all_is_over_the_last_end_has_been_told():
    """Nobody looks again, so it must not have come between two looks."""
    progress = Progress(EndsMeanwhile(), SimpleNamespace(hostile_ids=[1]))
    told = []
    while True:
        sample = progress.sample()
        told += sample.news
        if sample.is_over:
            break
    assert told == [Contained(KIND, 1, Outcome.CRASHED, state=JobState.DEAD)]
