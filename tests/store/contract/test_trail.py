"""What was done to one job: as far as the rows of the trail can tell."""

import pytest

from jobpool.operations.jobs import Cancel, Retry
from jobpool.operations.operate import operate
from jobpool.operations.principal import Principal, Role
from jobpool.operations.queue import Enqueue, Pause
from jobpool.operations.selection import Selection
from jobpool.operations.trail.entries import entries, target_of
from jobpool.operations.trail.id_ranges import RANGES_MAX
from jobpool.store.records.operating import AuditEntry, AuditFilter, Filter
from support.store.storing import new_job

ADMIN = Principal(who="ann", role=Role.ADMIN, origin="a test")
EVERYTHING = AuditFilter()


def some(store, count, **options):
    return [one.id for one in store.enqueue([new_job(**options)] * count)]


def about(store, job_id):
    """Return verbs and certainty of what is known of a job, newest first."""
    return [
        (entry.row.action, entry.is_certain)
        for entry in entries(store, EVERYTHING, job_id)
    ]


def test_a_job_has_the_rows_that_name_it(store):
    """By ids or by a filter; those of others and of pools are not its own."""
    first, second, third = some(store, 3)
    operate(store, ADMIN, Cancel(jobs=Selection(ids=(first, third))))
    operate(store, ADMIN, Retry(jobs=Selection(ids=(third,))))
    operate(store, ADMIN, Pause(pool="cpu"))
    operate(store, ADMIN, Cancel(jobs=Selection(which=Filter(kind="shop.thumbnail"))))
    assert about(store, first) == [("cancel", True)]
    assert about(store, second) == [("cancel", True)]
    assert about(store, third) == [("cancel", True), ("retry", True), ("cancel", True)]
    assert about(store, third + 1) == []
    assert len(list(entries(store, EVERYTHING))) == 4


@pytest.mark.parametrize("tenant", [None, "ada"])
def test_ids_beyond_what_a_row_holds_are_only_possible(store, tenant):
    """It says "maybe" to those, unless kind, pool or tenant is another's."""
    mixed = []
    for _ in range(RANGES_MAX + 10):
        mixed += some(store, 1, tenant="ada")
        mixed += some(store, 1, kind="shop.resize", tenant="bob")
    which = Filter(kind="shop.thumbnail", tenant=tenant)
    operate(store, ADMIN, Cancel(jobs=Selection(which=which)))
    canceled, others = mixed[::2], mixed[1::2]
    assert about(store, canceled[0]) == [("cancel", True)]
    assert about(store, canceled[-1]) == [("cancel", False)]
    assert about(store, others[0]) == about(store, others[-2]) == []


def test_a_stream_is_on_record_since_before_its_last_jobs(store, clock):
    """Its row has the moment at which it began."""

    def slowly():
        yield [new_job()]
        clock.advance(6 * 3600)
        yield [new_job()]

    operate(store, ADMIN, Enqueue(kind="k", pool="p", batches=slowly()))
    assert about(store, 2) == [("enqueue", True)]


def test_a_clock_that_was_set_back_hides_nothing(store, clock):
    """The job was made while it was days ahead."""
    (job_id,) = some(store, 1)
    clock.advance(-3 * 86_400)
    operate(store, ADMIN, Cancel(jobs=Selection(ids=(job_id,))))
    assert about(store, job_id) == [("cancel", True)]


def test_a_pruned_job_is_still_on_record(store):
    """Its number is never given again."""
    store.audit(
        AuditEntry(
            who="ann", role="admin", origin="x", action="cancel", target='{"ids":"7-9"}'
        )
    )
    assert store.get(8) is None
    assert about(store, 8) == [("cancel", True)]
    assert about(store, 10) == []


@pytest.mark.parametrize("target", ["", "{", "7", "[7]", '{"ids":7}', '{"ids":null}'])
def test_what_another_program_wrote_names_nothing(store, target):
    """And ends nobody's listing."""
    (job_id,) = some(store, 1)
    store.audit(AuditEntry(who="x", role="x", origin="x", action="x", target=target))
    assert about(store, job_id) == []
    (entry,) = entries(store, EVERYTHING)
    assert isinstance(target_of(entry.row), dict)


def test_a_listing_is_bounded_and_complete(store, monkeypatch):
    """Over any number of pages."""
    monkeypatch.setattr("jobpool.operations.trail.entries._PAGE", 3)
    for number in range(8):
        store.audit(
            AuditEntry(
                who="x", role="x", origin="x", action="x", target="{}", jobs=number
            )
        )
    for limit, expected in ((None, 8), (0, 0), (1, 1), (3, 3), (7, 7), (99, 8)):
        jobs = [entry.row.jobs for entry in entries(store, EVERYTHING, None, limit)]
        assert jobs == list(range(8))[::-1][:expected]
