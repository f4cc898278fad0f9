"""Errors pass between processes unchanged."""

import copy
import inspect
import pickle

import pytest

from jobpool import errors
from jobpool.errors import (
    AppError,
    DeathEvidence,
    JobCrashed,
    JobUnsuccessful,
    KeyConflict,
    RetryLater,
    Snooze,
)

SPECIAL = [
    AppError("no", traceback="its own"),
    KeyConflict("taken", 7),
    JobUnsuccessful(
        "no result", job_id=7, state="dead", outcome="failed", error_class="E"
    ),
    JobCrashed("gone", evidence=DeathEvidence(outcome="crashed")),
    Snooze("5m"),
    Snooze("5m", "not open yet"),
    RetryLater(),
    RetryLater("5m", "busy"),
]
PLAIN = [
    cls("a text")
    for _name, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, BaseException) and "__init__" not in vars(cls)
    if not issubclass(cls, errors.JobDied)
]


@pytest.mark.parametrize("error", [*SPECIAL, *PLAIN], ids=lambda e: type(e).__name__)
def test_an_error_is_the_same_in_another_process(error):
    """Class, text, attributes and notes; unpickling needs no constructor arguments."""
    error.add_note("seen by somebody")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
