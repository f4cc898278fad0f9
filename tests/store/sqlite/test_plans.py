"""Query plans: rows that were not requested cost nothing, however many there are."""

import re

import pytest

from jobpool.core.config.settings import Retention
from jobpool.store.records.operating import Filter
from jobpool.store.statements.named_sql import load_queries
from support.store.flows import settle_all, step, store_flow
from support.store.quotas import KIND, OTHER, enqueue, publish, quota
from support.store.storing import KINDS, lease, lease_one, new_job, succeeded

QUERIES = load_queries("sqlite")
BACKLOG = 5000
BOTH = {KIND: ["stripe"], OTHER: ["other"]}


def plan_of(connection, name):
    """Return a query's plan: number, parent's number, unused, text."""
    query = QUERIES[name]
    parameters = {
        word.strip(":,);").split(")")[0]: None
        for word in query.replace("(", " ").split()
        if word.startswith(":")
    }
    return connection.execute(f"EXPLAIN QUERY PLAN {query}", parameters).fetchall()


def lines_of(connection, name):
    """Return the texts of a query's plan."""
    return [line for _, _, _, line in plan_of(connection, name)]


def test_what_has_ended_by_minute_is_found_without_older_jobs(store, by_hand):
    """By the index of times; attempts from the last one on, so far as is said."""
    plan = lines_of(by_hand, "ended_by_minute")
    index = "SEARCH jobpool_jobs USING INDEX jobpool_jobs_succeeded (finished_at_ms>?)"
    assert index in plan
    assert not [line for line in plan if "FOR ORDER BY" in line]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("lease_candidates", "jobpool_jobs_runnable (pool=? AND kind=?)"),
        ("count_runnable", "jobpool_jobs_runnable (pool=? AND kind=?)"),
        ("promote_due", "jobpool_jobs_pending (run_at_ms<?)"),
        ("count_due", "jobpool_jobs_pending (run_at_ms<?)"),
        ("next_due", "jobpool_jobs_pending"),
        ("lease_status", "jobpool_jobs_pending"),
        ("lease_status", "jobpool_jobs_expiring (expires_at_ms>? AND expires_at_ms<?)"),
        ("expired_jobs", "jobpool_jobs_expiring (expires_at_ms>? AND expires_at_ms<?)"),
        ("leases_of", "jobpool_jobs_leased (supervisor=?)"),
        ("leased_jobs", "jobpool_jobs_leased"),
        ("count_leases", "jobpool_jobs_leased (supervisor=?)"),
        ("ids_of_key", "jobpool_jobs_key (kind>?)"),
        ("ids_of_key", "jobpool_jobs_key (kind=? AND key=?)"),
        ("look_newest", "jobpool_jobs USING INTEGER PRIMARY KEY (rowid<?)"),
        ("look_matching", "j USING INTEGER PRIMARY KEY (rowid=?)"),
        ("look_records", "j USING INTEGER PRIMARY KEY (rowid=?)"),
        *(
            (name, f"jobpool_jobs_{state}")
            for name in ("look_states", "look_tally")
            for state in ("pending", "waiting", "runnable", "leased", "dead")
        ),
        *(
            ("look_ended", f"jobpool_jobs_{state} (finished_at_ms<?)")
            for state in ("succeeded", "dead", "quarantined", "canceled")
        ),
        ("cancel_requests", "jobpool_jobs_asked_to_stop (supervisor=?)"),
        ("key_holders", "jobpool_jobs_key (kind=? AND key=?)"),
        ("unique_holders", "jobpool_jobs_unique (kind=? AND unique_text=?)"),
        (
            "old_succeeded",
            "jobpool_jobs_succeeded (finished_at_ms>? AND finished_at_ms<?)",
        ),
        (
            "old_canceled",
            "jobpool_jobs_canceled (finished_at_ms>? AND finished_at_ms<?)",
        ),
        ("old_dead", "jobpool_jobs_dead (finished_at_ms>? AND finished_at_ms<?)"),
        (
            "old_quarantined",
            "jobpool_jobs_quarantined (finished_at_ms>? AND finished_at_ms<?)",
        ),
        ("surplus_succeeded", "jobpool_jobs_succeeded"),
        ("surplus_canceled", "jobpool_jobs_canceled"),
        ("surplus_dead", "jobpool_jobs_dead"),
        ("surplus_quarantined", "jobpool_jobs_quarantined"),
        ("drop_outputs", "jobpool_outputs_place (place>? AND place<?)"),
        ("history_of", "jobpool_attempts_of_job (job_id=?)"),
        ("get_attempts", "jobpool_attempts_of_job (job_id=?)"),
        ("delete_attempts", "jobpool_attempts_of_job (job_id=?)"),
        ("delete_result_parts", "sqlite_autoindex_jobpool_result_parts_1 (job_id=?)"),
        ("drop_draft_parts", "_result_parts_1 (job_id=? AND token=?)"),
        ("prune_draft_parts", "_result_parts_1 (job_id=? AND token=?)"),
        ("get_job", "_result_parts_1 (job_id=? AND token=?)"),
        ("schedules_due", "jobpool_schedules_next"),
        ("schedules_due", "jobpool_schedules_planned"),
        ("schedules_due", "jobpool_schedules_waiting"),
        ("schedules_due", "jobpool_ticks_open (schedule=?)"),
        ("lock_due_schedules", "jobpool_schedules_next (next_at_ms>? AND next"),
        ("lock_due_schedules", "jobpool_schedules_planned (planned_at_ms>?)"),
        ("lock_due_schedules", "jobpool_schedules_waiting"),
        ("open_ticks", "jobpool_ticks_open (schedule=?)"),
        ("find_ticks", "jobpool_ticks_nominal (schedule=?)"),
        ("find_schedules", "jobpool_ticks_nominal (schedule=?)"),
        ("ticks_of_jobs", "jobpool_ticks_nominal (schedule=? AND nominal_at_ms>?)"),
        ("prune_skipped", "jobpool_ticks_skipped (ended_at_ms<?)"),
        ("skip_ticks_of", "jobpool_ticks_open (schedule=?)"),
        ("find_stragglers", "priority=? AND run_at_ms=? AND id>?)"),
        ("find_stragglers", "priority=? AND run_at_ms>?)"),
        ("find_stragglers", "_runnable (pool=? AND kind=? AND priority<?)"),
        (
            "last_of_priority",
            "jobpool_jobs_runnable (pool=? AND kind=? AND priority=?)",
        ),
        ("jobs_of_lanes", "jobpool_jobs_in_lane (lane=?)"),
        ("lane_heads", "jobpool_jobs_in_lane (lane=?)"),
        ("leave_lanes", "jobpool_jobs_in_lane (lane=?)"),
        ("join_lanes", "jobpool_jobs_in_lane (lane=?)"),
        ("open_lanes", "jobpool_lanes_open (pool=? AND kind=?)"),
        ("lanes_look", "jobpool_lanes_opening (open_at_ms>?)"),
        ("lanes_opening", "jobpool_lanes_opening (open_at_ms>?)"),
        ("open_due_lanes", "jobpool_lanes_opening (open_at_ms>? AND open_at_ms<?)"),
        ("free_lanes", "jobpool_lanes_blocked (blocked_by=?)"),
        ("wanted_buckets", "jobpool_lanes_blocked (blocked_by=?)"),
        ("contested_buckets", "jobpool_buckets_contested (checked_at_ms<?)"),
        ("free_permits", "jobpool_permits_of_token (token=?)"),
        ("return_permits", "jobpool_permits_of_token (token=?)"),
        ("used_buckets", "jobpool_buckets_of_quota (quota=?)"),
        ("prune_lanes", "jobpool_lanes_idle (vtime<?)"),
        ("prune_buckets", "jobpool_buckets_idle (checked_at_ms<?)"),
        ("waiting_of", "jobpool_jobs_runnable (pool=? AND kind=? AND priority<?)"),
        ("waiting_of_tenant", "jobpool_jobs_of_tenant (tenant=?)"),
        ("ended_lately", "jobpool_jobs_succeeded (finished_at_ms>?)"),
        ("held_for", "jobpool_lanes_opening (open_at_ms>?)"),
        ("due_alerts", "jobpool_alerts_next (next_at_ms<?)"),
        ("count_endings", "jobpool_jobs_succeeded (finished_at_ms>?)"),
        ("count_endings", "jobpool_jobs_dead (finished_at_ms>?)"),
        ("count_endings", "jobpool_jobs_quarantined (finished_at_ms>?)"),
        ("stuck_flows", "jobpool_flows_open"),
        ("stuck_flows", "jobpool_jobs_of_flow_step (step=?)"),
        ("asking_steps", "jobpool_flows_open"),
        ("asking_steps", "jobpool_steps_left (flow=?)"),
        ("open_incidents", "jobpool_incidents_open"),
        ("ended_incidents", "jobpool_incidents_ended"),
    ],
)
def test_each_search_uses_its_index(store, by_hand, name, index):
    """And scans no table."""
    plan = lines_of(by_hand, name)
    assert any(index in line for line in plan), plan
    assert not [line for line in plan if is_table_scan(line)], plan


def is_table_scan(line):
    """Say whether a line of a plan scans one of our big tables."""
    big = ("jobpool_jobs", "jobpool_attempts", "jobpool_payloads")
    big += ("jobpool_results", "jobpool_result_parts")
    big += ("jobpool_lanes", "jobpool_buckets", "jobpool_permits")
    big += ("jobpool_steps", "jobpool_edges")
    aliases = {"SCAN j", "SCAN c", "SCAN r", "SCAN a", "SCAN p", "SCAN past"}
    if line in aliases:
        return True
    words = line.split()
    if words[:2] == ["SCAN", "jobpool_ticks"]:
        return True
    return words[0] == "SCAN" and words[1] in big and "INDEX" not in words


@pytest.mark.parametrize(
    "name",
    [
        "settle_jobs",
        "succeed_jobs",
        "lease_jobs",
        "begin_attempts",
        "record_beats",
        "expire_jobs",
        "raw_jobs",
        "rewrite_job",
        "cancel_waiting",
        "request_cancel",
        "revive_jobs",
        "number_jobs",
        "cancel_for_tick",
        "reopen_ticks",
        "scheduled",
        "insert_attempts",
        "get_job",
        "get_payload",
        "get_trace",
        "get_output",
        "show_running",
        "find_jobs",
        "count_jobs",
        "delete_jobs",
        "delete_payloads",
        "delete_results",
        "move_jobs",
        "store_part",
        "end_draft",
        "drop_draft",
        "hold_stragglers",
        "stamp_jobs",
        "lock_lanes",
        "lock_buckets",
        "change_buckets",
        "sweep_permits",
        "permits_asked",
        "link_to_replaced",
        "pass_ticks_on",
        "link_to_replays",
        "open_members",
        "cancel_members",
        "stop_members",
        "hold_members",
        "renew_members",
        "keep_added",
        "drop_added",
        "copy_payloads",
        "replace_members",
    ],
)
def test_each_write_uses_the_primary_key(store, by_hand, name):
    """A batch costs what its rows cost."""
    plan = lines_of(by_hand, name)
    assert any("USING INTEGER PRIMARY KEY" in line for line in plan), plan
    assert not [line for line in plan if is_table_scan(line)], plan


def test_the_best_of_a_kind_are_found_without_sorting_its_backlog(store, by_hand):
    """In the subquery there is the index and nothing else."""
    plan = plan_of(by_hand, "lease_candidates")
    (parent,) = [up for _, up, _, line in plan if "jobpool_jobs_runnable" in line]
    below = [line for _, up, _, line in plan if up == parent]
    suspects = "USING ROWID SEARCH ON TABLE jobpool_suspects FOR IN-OPERATOR"
    below = [line for line in below if line != suspects]
    assert below[0].startswith("SEARCH r USING")
    # Whose arguments did not fit: nearly always an empty table, by its key.
    assert re.fullmatch("CORRELATED SCALAR SUBQUERY \\d+", below[1])
    assert len(below) == len(("the index", "misfits")), plan
    assert any("SEARCH m USING PRIMARY KEY (job_id=?)" in line for *_, line in plan)


@pytest.mark.parametrize("table", ["jobpool_jobs", "jobpool_attempts"])
def test_no_constraint_builds_a_table_for_each_row(store, by_hand, table):
    """A CHECK does so with IN and more than two choices.

    SQLite does not keep the table.
    """
    columns = by_hand.execute("SELECT name FROM pragma_table_info(?)", (table,))
    nothing = ", ".join("NULL" for _ in columns.fetchall())
    program = by_hand.execute(f"EXPLAIN INSERT INTO {table} VALUES ({nothing})")  # noqa: S608 - our own names
    opcodes = [opcode for _, opcode, *_ in program.fetchall()]
    assert opcodes.count("Halt") > 1, "no constraint is looked at"
    assert "OpenEphemeral" not in opcodes


def steps_of(store, action):
    """Count the virtual machine's steps, in tens."""
    steps = 0

    def count():
        nonlocal steps
        steps += 1

    connection = store._database._session.connection
    connection.set_progress_handler(count, 10)
    try:
        action()
    finally:
        connection.set_progress_handler(None, 0)
    return steps


def test_pruning_does_not_read_members_of_an_open_flow_again(store, clock):
    """They stay, and are older than all that goes; the next search begins behind."""
    store_flow(store, step(0), step(1, 0), members={0: 2000})
    for _ in range(2):
        settle_all(store, limit=1000)
    clock.advance(3_600_000)
    keep = Retention(succeeded_s=1.0)
    first = steps_of(store, lambda: store.prune(keep))
    (enqueued,) = store.enqueue([new_job(priority=9)])
    store.settle([succeeded(lease_one(store))])
    clock.advance(2000)
    second = steps_of(store, lambda: store.prune(keep))
    assert store.find(Filter(ids=(enqueued.id,))) == []
    assert second < first / 4


def test_old_jobs_are_looked_for_from_the_beginning_once_an_hour(store, clock, by_hand):
    """What others held is passed over; so is what is stored with an older end."""
    keep = Retention(succeeded_s=1.0)
    clock.advance(3_600_000)
    assert store.prune(keep) == 0
    (enqueued,) = store.enqueue([new_job()])
    store.settle([succeeded(lease_one(store))])
    by_hand.execute("UPDATE jobpool_jobs SET finished_at_ms = 1")
    by_hand.commit()
    clock.advance(2000)
    assert store.prune(keep) == 0
    clock.advance(3_600_000)
    assert store.prune(keep) == 1
    assert store.find(Filter(ids=(enqueued.id,))) == []


def backlogs(clock):
    """Thousands of jobs that a lease of the best ten must not read."""
    return {
        "unknown": ([new_job("shop.unknown", priority=9)] * BACKLOG, None),
        "other pool": ([new_job("shop.fetch", "io", priority=9)] * BACKLOG, None),
        "paused": ([new_job("shop.resize", priority=9)] * BACKLOG, "shop.resize"),
        "future": ([new_job(delay_ms=10**9)] * BACKLOG, None),
        "same kind": ([new_job(priority=-9)] * BACKLOG, None),
        "expiring": ([new_job("x", expires_in_ms=10**9)] * BACKLOG, None),
    }


@pytest.mark.parametrize(
    "which",
    [
        "unknown",
        "other pool",
        "paused",
        "future",
        "same kind",
        "expiring",
        "finished",
    ],
)
def test_a_backlog_of_other_jobs_costs_nothing(store, clock, which):
    """As many steps with five thousand of them as without."""

    def work():
        store.enqueue([new_job()] * 10)
        granted = lease(store, limit=10)
        assert len(granted) == 10
        assert {store.get(one.id).priority for one in granted} == {0}
        store.settle([succeeded(one) for one in granted])
        store.due({"cpu": KINDS["cpu"]}, 100)

    work()
    before = steps_of(store, work)
    if which == "finished":
        store.enqueue([new_job()] * BACKLOG)
        store.settle([succeeded(one) for one in lease(store, limit=BACKLOG)])
    else:
        jobs, paused = backlogs(clock)[which]
        store.enqueue(jobs)
        if paused:
            store.pause(kind=paused)
    work()
    after = steps_of(store, work)
    assert after < before * 1.2 + 20


def blocked_jobs(store):
    """Thousands of jobs in one lane whose bucket is full."""
    enqueue(store, BACKLOG)
    assert len(lease(store, kinds={"cpu": [KIND]})) == 1


def blocked_buckets(store):
    """Hundreds of lanes with buckets that open at times of their own."""
    for number in range(BACKLOG // 10):
        enqueue(store, 2, values={"vendor": str(number)})
    while lease(store, kinds={"cpu": [KIND]}):
        pass


@pytest.mark.parametrize(
    ("fill", "numbers"),
    [
        (blocked_jobs, {"concurrency": 1}),
        (blocked_buckets, {"rate": "1/h", "per": "args.vendor"}),
    ],
)
def test_what_quotas_hold_back_costs_a_claim_nothing(store, fill, numbers):
    """Jobs of another kind are leased in about as many steps."""
    publish(store, quota(**numbers), quota("other", concurrency=9), needs=BOTH)

    def work():
        enqueue(store, 5, OTHER)
        granted = lease(store, limit=5)
        assert [one.kind for one in granted] == [OTHER] * 5
        store.settle([succeeded(one) for one in granted])
        store.due({"cpu": KINDS["cpu"]}, 100)

    for _ in range(3):
        work()
    before = steps_of(store, work)
    fill(store)
    for _ in range(3):
        work()
    # Some of the jobs that wait are looked at in turn, for those of no lane.
    few = 250 * 10
    assert steps_of(store, work) < before * 1.3 + few


def test_the_step_count_does_see_a_backlog(store):
    """Counting all jobs does cost in proportion: the test can fail."""
    few = steps_of(store, store.stats)
    store.enqueue([new_job()] * BACKLOG)
    assert steps_of(store, store.stats) > few + BACKLOG / 10
