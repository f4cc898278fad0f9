"""Records of schedules: names, how far a tick is, and what travels as JSON."""

import msgspec
import pytest

from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.core.rules.schedules.policy import Missed, Overlap, Policy
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import (
    Declared,
    Progress,
    check_declared,
    progress_of,
)
from jobpool.errors import ConfigError


def declared(**changed):
    given = {
        "name": "report.nightly",
        "kind": "report",
        "pool": "cpu",
        "payload": b"{}",
    }
    return Declared(**{**given, "rule": Rule(cron="@daily"), **changed})


@pytest.mark.parametrize(
    "name", ["digest-42", "report.nightly", "a/b:c", "7", "x" * 200]
)
def test_names(name):
    assert check_declared(declared(name=name)).name == name


@pytest.mark.parametrize(
    "name", ["", "-x", "a b", "größe", "x" * 201, "a\n", "x" * 10**7]
)
def test_other_names_are_refused(name):
    with pytest.raises(ConfigError, match="not a valid name; expected up to") as caught:
        check_declared(declared(name=name))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "wrong",
    [
        {"rule": Rule()},
        {"policy": Policy(catchup_max=0)},
    ],
)
def test_errors_name_the_schedule(wrong):
    with pytest.raises(ConfigError, match=r"^schedule 'report.nightly': "):
        check_declared(declared(**wrong))


@pytest.mark.parametrize("state", [None, *JobState])
@pytest.mark.parametrize("attempt", [0, 1])
def test_how_far_a_tick_is(state, attempt):
    """A job that was dead is; one that is leased runs; else attempts tell."""
    found = progress_of(state, attempt)
    if state in (JobState.DEAD, JobState.QUARANTINED):
        assert found is Progress.DEAD
    elif state is None or state in FINISHED:
        assert found is Progress.ENDED
    else:
        retries = attempt == 1 and state is not JobState.LEASED
        assert found is (Progress.RETRYING if retries else Progress.RUNNING)


def test_what_is_stored_says_only_what_differs_and_reads_back():
    """As kept in stores; what newer code has added is ignored."""
    rule = Rule(cron="0 2 * * *", tz="Europe/Berlin")
    assert msgspec.json.encode(rule) == b'{"cron":"0 2 * * *","tz":"Europe/Berlin"}'
    policy = Policy(missed=Missed.ALL, overlap=Overlap.BUFFER_ONE)
    assert msgspec.json.encode(policy) == b'{"missed":"all","overlap":"buffer_one"}'
    for record in (rule, policy):
        text = msgspec.json.encode(record)[:-1] + b',"later":1}'
        assert msgspec.json.decode(text, type=type(record)) == record
