"""A store as a dict of jobs: the words in which the property tests think of it."""

import dataclasses

from hypothesis import strategies as st

from jobpool.core.jobs.job import Debounce, JobState, OnConflict
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.policy import Policy

S = JobState
KINDS = {"cpu": ("a", "b"), "io": ("c",)}
POOL_OF = {"a": "cpu", "b": "cpu", "c": "io", "unknown": "cpu"}
POLICY = Policy(max_attempts=3, max_crashes=2, max_lost=2)
REVIVABLE = (S.PENDING, S.DEAD, S.QUARANTINED, S.CANCELED)


@dataclasses.dataclass
class ModelJob:
    kind: str
    payload: bytes
    priority: int
    key: str | None
    unique: str | None
    state: JobState
    run_at_ms: int
    expires_at_ms: int | None
    attempt: int = 0
    spent: tuple[int, int, int, int] = (0, 0, 0, 0)
    past: int = 0
    token: int | None = None
    run: str | None = None
    finished_at_ms: int | None = None
    is_asked_to_stop: bool = False
    outcome: Outcome | None = None
    checkpoint: bytes | None = None
    result: bytes | None = None
    snoozes: int = 0
    snoozed_since_ms: int | None = None
    replays: int | None = None
    replaced_by: int | None = None
    created_at_ms: int = 0
    is_named: bool = True
    """It has its unique text, as far as that counts for others."""
    until_start: bool = False
    replacements: int = 0
    postponements: int = 0

    def is_late(self, now_ms):
        return not self.attempt and (self.expires_at_ms or now_ms + 1) <= now_ms

    def finish(self, state, now_ms):
        self.state, self.finished_at_ms = state, now_ms

    def fields(self):
        """Return what the store must say of it."""
        return (
            self.kind,
            self.priority,
            self.key,
            self.unique,
            self.state,
            self.run_at_ms,
            self.expires_at_ms,
            self.attempt,
            self.spent,
            self.run,
            self.finished_at_ms,
            self.is_asked_to_stop,
            self.outcome,
            self.checkpoint,
            self.result,
            self.snoozes,
            self.snoozed_since_ms,
            self.until_start,
            self.replacements,
            self.postponements,
        )


DEBOUNCED = st.builds(
    dict,
    kind=st.sampled_from(["a", "c"]),
    payload=st.sampled_from([b"1", b"2"]),
    priority=st.integers(-1, 1),
    delay_ms=st.sampled_from([1000, 40_000]),
    expires_in_ms=st.sampled_from([None, None, 50_000]),
    debounce=st.builds(Debounce, st.sampled_from(OnConflict), st.booleans()),
)
"""Jobs with the unique text u, which they share in ways of their own."""
NEW_JOBS = st.builds(
    dict,
    kind=st.sampled_from(sorted(POOL_OF)),
    payload=st.sampled_from([b"1", b"2"]),
    priority=st.integers(-1, 1),
    delay_ms=st.sampled_from([0, 0, 0, 1000, 60_000]),
    expires_in_ms=st.sampled_from([None, None, 1, 5000]),
    key=st.sampled_from([None, None, None, "k", "l"]),
    unique=st.sampled_from([None, None, None, "u"]),
)


def fields_of(job):
    """Return what a job of the store says, in the model's words."""
    return (
        job.kind,
        job.priority,
        job.key,
        job.unique,
        job.state,
        job.run_at_ms,
        job.expires_at_ms,
        job.attempt,
        (job.failures, job.crashes, job.interruptions, job.recoveries),
        job.supervisor,
        job.finished_at_ms,
        job.cancel_requested,
        job.outcome,
        job.checkpoint,
        job.result,
        job.snoozes,
        job.snoozed_since_ms,
        job.until_start,
        job.replacements,
        job.postponements,
    )
