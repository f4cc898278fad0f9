"""A schedule whose row somebody has damaged costs that schedule alone."""

import pytest

from support.store.scheduling import declared, put, run_one

UNREADABLE = "its row cannot be read; another program has written it"


@pytest.fixture
def damage(store, by_hand):
    """Change a row of the schedule b, or of its ticks, past every rule."""
    by_hand.execute("PRAGMA ignore_check_constraints = ON")

    def change(table, column, value):
        which = "(SELECT id FROM jobpool_schedules WHERE name = 'b')"
        owner = "id" if table == "schedules" else "schedule"
        by_hand.execute(
            f"UPDATE jobpool_{table} SET {column} = ? WHERE {owner} = {which}",  # noqa: S608 - our own
            (value,),
        )

    return change


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("rule", "no JSON"),
        ("rule", '{"every_ms":"soon"}'),
        ("options", "[]"),
        ("priority", 10**9),
        ("kind", "no kind"),
    ],
)
def test_what_cannot_be_read_is_paused_and_says_so(store, clock, damage, column, value):
    """Until somebody puts it again; the others go on."""
    put(store, "a", "b", "c")
    damage("schedules", column, value)
    clock.advance(60)
    stepped = store.tick()
    assert stepped.enqueued == 2
    assert [(one.name, one.paused) for one in stepped.notices] == [("b", UNREADABLE)]
    clock.advance(60)
    assert store.tick().notices == ()
    assert store.put_schedule(declared("b"))
    assert store.resume_schedule("b")
    store.tick()
    clock.advance(60)
    store.tick()
    assert store.ticks("b")[-1].job_id is not None


@pytest.mark.parametrize(
    ("column", "value"), [("payload", "text"), ("waits", "x"), ("since_ms", b"x")]
)
def test_a_row_of_other_types_is_deleted_and_reported(
    store, clock, damage, column, value
):
    """No statement could write it any more."""
    put(store, "a", "b", "c")
    damage("schedules", column, value)
    clock.advance(60)
    assert store.tick().enqueued == 2
    (noted,) = store.damaged_rows()
    assert "schedule 2 could not be read and was deleted" in noted
    assert [row.declared.name for row in store.schedules()] == ["a", "c"]


@pytest.mark.parametrize(
    ("column", "value"),
    [("job_id", "x"), ("job_id", None), ("nominal_at_ms", "x"), ("state", "lost")],
)
def test_a_damaged_tick_blocks_nothing(store, clock, damage, column, value):
    """As if it were gone, or its job were."""
    put(store, "b")
    clock.advance(60)
    store.tick()
    run_one(store)
    damage("ticks", column, value)
    clock.advance(60)
    assert store.tick().enqueued == 1
