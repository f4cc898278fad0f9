"""A run's entry: whether it may be open, and what is retried until it is made.

While a run may be open in the store, its directory must outlive it.
"""

from typing import Any

import msgspec
import pytest

from jobpool.core.formats import CODECS, QUOTAS
from jobpool.core.rules.quotas.definition import Limits, Need, Quota, Tenant
from jobpool.errors import (
    FeatureHeldBack,
    JobpoolBug,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
    UsageError,
)
from jobpool.store.records.runs import Run
from jobpool.supervisor.maintenance.run_entry import NO_THREAD, Entry, until_taken
from jobpool.supervisor.storage.inbox import Chore
from support.store.storing import kind_record


class Store:
    """A store that answers as the test says."""

    def __init__(self, entry=None, error=None):
        self.entry, self.error = entry, error
        self.seen = []

    def begin_run(self, run, _kinds, _ttl_s):
        self.seen.append((run.id, self.entry.may_be_open))
        self.version = run.app_version
        self.limits = run.limits
        if self.error:
            raise self.error

    def end_run(self, run_id):
        self.seen.append(run_id)
        if self.error:
            raise self.error

    def wake(self):
        self.seen.append("wake")


@pytest.fixture
def entry():
    own = Run(id="abc", host="a", boot_id="b", pid=1, pid_namespace=1, version="0")
    return Entry(own)


def test_an_unanswered_entry_may_be_open(entry):
    """The supervisor can end before the answer comes."""
    store = Store(entry)
    assert not entry.may_be_open
    entry.begin(store, [], 60.0)
    assert store.seen == [("abc", True)]
    assert entry.may_be_open


@pytest.mark.parametrize("held_back", [False, True])
def test_codecs_are_asked_for_by_the_supervisor_of_an_application_with_one(
    entry, held_back
):
    """Its producers may have no right to. If older ones run, it begins all the same."""
    asked = []

    def require(wanted):
        asked.append(wanted)
        if held_back:
            raise FeatureHeldBack

    store = Store(entry)
    store.require = require
    entry.begin(store, [kind_record(schema=b'{"type":"object"}')], 60.0)
    assert not asked
    schema = b'{"x-jobpool-codec":{"name":"fernet"}}'
    entry.begin(store, [kind_record(), kind_record(schema=schema)], 60.0)
    assert asked == [CODECS]


@pytest.mark.parametrize(
    ("needs", "limits", "are_asked_for"),
    [
        ((), Limits(quotas=(Quota(name="stripe", concurrency=1),)), False),
        ((Need("stripe"),), Limits(), True),
        ((), Limits(tenants=(Tenant(name="*", concurrency=5),)), True),
    ],
)
@pytest.mark.parametrize("held_back", [False, True])
def test_quotas_are_asked_for_once_a_kind_needs_one_or_a_tenant_has_a_rule(
    entry, needs, limits, are_asked_for, held_back
):
    """If older supervisors run it begins all the same, and says what has to wait."""
    asked = []

    def require(wanted):
        asked.append(wanted)
        if held_back:
            raise FeatureHeldBack("jobpool 0.1 runs on host a")

    store = Store(entry)
    store.require = require
    kind = msgspec.structs.replace(kind_record(), needs=needs)
    why = entry.begin(store, [kind], 60.0, "v1", limits)
    assert store.limits == limits
    assert asked == ([QUOTAS] if are_asked_for else [])
    is_said = are_asked_for and held_back
    assert why == ("jobpool 0.1 runs on host a" if is_said else "")


def test_an_entry_is_made_anew_with_the_version_that_was_reloaded(entry):
    """So that `status` shows what runs now, not what was started."""
    store = Store(entry)
    entry.begin(store, [], 60.0, "v1")
    assert store.version == "v1"
    entry.begin(store, [], 60.0, "v2")
    assert store.version == "v2"


def test_a_refused_entry_leaves_no_open_run(entry):
    """Nothing happened: there is no run to be proven dead."""
    with pytest.raises(StoreUnavailable):
        entry.begin(Store(entry, StoreUnavailable("away")), [], 60.0)
    assert not entry.may_be_open
    entry.begin(Store(entry), [], 60.0)
    with pytest.raises(StoreUnavailable):
        entry.begin(Store(entry, StoreUnavailable("away")), [], 60.0)
    assert entry.may_be_open


def test_an_entry_with_an_unknown_outcome_may_be_open(entry):
    """It stays so when the next try is answered."""
    with pytest.raises(OutcomeUnknown):
        entry.begin(Store(entry, OutcomeUnknown("who knows")), [], 60.0)
    assert entry.may_be_open
    entry.begin(Store(entry), [], 60.0)
    assert entry.may_be_open


def test_an_entry_is_open_until_its_end_is_written(entry):
    """An end that failed leaves it open."""
    entry.begin(Store(entry), [], 60.0)
    with pytest.raises(StoreUnavailable):
        entry.end(Store(entry, StoreUnavailable("away")))
    assert entry.may_be_open
    store = Store(entry)
    entry.end(store)
    assert store.seen == ["abc", "wake"]
    assert not entry.may_be_open


STORE: Any = None


def entering(error: Exception, left: list[Chore]) -> Chore:
    """Return a chore that fails, repeated for as long as needed."""

    def enter(_store: Any) -> Any:
        raise error

    return until_taken(enter, left.append, lambda: True)


@pytest.mark.parametrize("error", [ValueError("x"), JobpoolBug("x"), UsageError("x")])
def test_a_supervisor_that_cannot_enter_its_run_ends_with_an_error(
    error: Exception,
) -> None:
    """An alarm alone would leave it waiting forever."""
    left: list[Chore] = []
    with pytest.raises(StoreRefused, match="could not enter its run") as refused:
        entering(error, left)(STORE)
    assert refused.value.__cause__ is error
    assert left == []


def test_entering_a_run_is_retried_while_the_store_is_away() -> None:
    """That has an error of its own."""
    left: list[Chore] = []
    chore = entering(StoreUnavailable("away"), left)
    with pytest.raises(StoreUnavailable):
        chore(STORE)
    assert left == [chore]


def test_entering_a_run_is_retried_on_a_machine_without_a_free_thread() -> None:
    """There may be one a little later; the error says what is missing."""
    left: list[Chore] = []
    chore = entering(RuntimeError(NO_THREAD), left)
    with pytest.raises(StoreUnavailable, match="another thread"):
        chore(STORE)
    assert left == [chore]
