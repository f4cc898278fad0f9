"""Query plans on PostgreSQL: right ones, however wrong the statistics are.

Twenty thousand jobs are in a state that the statistics consider empty: what a burst
leaves behind until autovacuum runs. A planner that believes them finds that state's
whole index cheap. Each hot statement must use an id, or the part of its own index that
it asks for, the first time and as a prepared statement.
"""

import json
import re
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
import pytest
from psycopg import sql

from jobpool.store.opening import open_store
from jobpool.store.postgres.connection.session import queries_of
from support.postgres.server import query_of, server

BIG = (
    *("jobs", "attempts", "lanes", "buckets", "permits", "shares", "reports"),
    *("flows", "steps", "edges", "flow_notes"),
)
ROWS = 20_000
BATCH = 500
NOW_MS = 1_800_000_000_000

WAITS = {
    "token": "NULL",
    "supervisor": "NULL",
    "leased_at_ms": "NULL",
    "finished_at_ms": "NULL",
    "cancel_requested": "false",
}
ENDED = {**WAITS, "attempt": "1", "finished_at_ms": "id"}
STATES = {
    "runnable": WAITS,
    "pending": WAITS,
    "leased": {
        "attempt": "1",
        "token": "id",
        "supervisor": "'run-' || id % 2",
        "leased_at_ms": "1",
        "cancel_requested": "id % 3 = 0",
    },
    "succeeded": {**ENDED, "outcome": "'succeeded'", "completed_token": "id"},
    "dead": {**ENDED, "outcome": "'failed'"},
    "quarantined": {**ENDED, "outcome": "'crashed'"},
    "canceled": {**WAITS, "finished_at_ms": "id"},
}
"""What a job has besides its state."""

FILL = """INSERT INTO {schema}.jobs
    (kind, pool, state, key, unique_text, payload, created_at_ms, run_at_ms,
     expires_at_ms%s)
    SELECT 'shop.thumbnail', 'cpu', {state}, 'k' || id, 'u' || id, '{{}}', 1, id, id%s
    FROM generate_series(1, {rows}) AS id"""

FILL_ATTEMPTS = """INSERT INTO {schema}.attempts
    (job_id, attempt, token, outcome, traceback, started_at_ms, finished_at_ms)
    SELECT n, 1, n, 'failed', repeat('x', 1000), 1, 1
    FROM generate_series(1, {rows}) AS n"""

FILL_MEMBERS = """INSERT INTO {schema}.jobs
    (kind, pool, state, payload, created_at_ms, run_at_ms, step, generation)
    SELECT 'shop.thumbnail', 'cpu', 'waiting', '{{}}', 1, id, 1, 1
    FROM generate_series(1, {rows}) AS id"""

END_MEMBERS = """UPDATE {schema}.jobs SET state = 'succeeded', outcome = 'succeeded',
    attempt = 1, finished_at_ms = run_at_ms, completed_token = 1
    WHERE run_at_ms < {rows}"""

SITUATIONS = {
    "never analyzed, all runnable": (None, "runnable"),
    "never analyzed, all leased": (None, "leased"),
    "empty when analyzed, all runnable": ("", "runnable"),
    "empty when analyzed, all leased": ("", "leased"),
    "no runnable when analyzed": ("pending", "runnable"),
    "no pending when analyzed": ("runnable", "pending"),
    "no leased when analyzed": ("runnable", "leased"),
    "no succeeded when analyzed": ("leased", "succeeded"),
    "no dead when analyzed": ("leased", "dead"),
    "no quarantined when analyzed": ("leased", "quarantined"),
    "no canceled when analyzed": ("runnable", "canceled"),
    "all was pending when analyzed, all leased": ("pending", "leased"),
}
"""The state of all jobs when statistics were last updated (None: never; "":
there was none), and in which they stand now."""


class Rule(NamedTuple):
    """How a statement has to find what it needs."""

    parameters: dict
    indexes: dict[str, str]
    """Allowed indexes, and the columns that each must be asked for."""
    in_order: str | None = None
    """The index that gives the rows in order, so that a LIMIT ends the walk."""


def places(width):
    """Rows of a batch: [id, token, nothing…], spread over the table."""
    step = ROWS // BATCH
    rows = [[n, n, *[None] * (width - 2)] for n in range(1, ROWS, step)]
    return json.dumps(rows)


IDS = json.dumps(list(range(1, ROWS, ROWS // BATCH)))
NAMES = json.dumps([["shop.thumbnail", f"k{n}"] for n in range(BATCH)])
KINDS = json.dumps(["shop.thumbnail", "shop.resize"])
PKEY = {"jobs_pkey": "id"}
OLD = {"since_ms": 0, "before_ms": NOW_MS, "limit": 1000}
RUNNABLE = {"jobs_runnable": "pool kind"}
PENDING = {"jobs_pending": "run_at_ms"}
IN_LANE = {"jobs_in_lane": "lane"}
LANES = {"lanes_pkey": "id"}
AGED = json.dumps({"cpu": 60_000})
BUCKETS = {"buckets_pkey": "id"}
SHARE = {"shares_whose": "pool priority who"}
TURNS = json.dumps([["cpu", 0, f"t{n}", "shop.thumbnail", 1] for n in range(BATCH)])
STRAGGLING = json.dumps([["cpu", "shop.thumbnail", 0, n, n] for n in range(4)])
OF_JOB = {"attempts_of_job": "job_id"}
TEXTS = {
    "jobs_unique": "kind unique_text",
    "debounced_pkey": "job_id",
    "debounced_text": "kind unique_text",
}
RUN = {"run_id": "run-1"}
OF_SCHEDULE = {
    "ticks_nominal": "schedule",
    "ticks_open": "schedule",
    "ticks_pkey": "id",
    "schedules_next": "",
    "schedules_planned": "",
    "schedules_waiting": "",
    "schedules_name": "name",
    "schedules_pkey": "id",
}

OF_STEP = {
    "jobs_of_step": "step",
    "jobs_of_flow_step": "step",
    "jobs_waiting": "step",
    "jobs_bad": "step",
}
UNENDED = {
    "jobs_of_step": "step",
    "jobs_waiting": "step",
    "jobs_bad": "step",
    "jobs_pkey": "id",
}
FOLDS = (
    *("flow_steps", "missed_members", "bad_members", "open_members"),
    *("running_member", "stop_members", "cancel_members"),
)
ENDINGS = json.dumps([[n, "a step before it has failed"] for n in range(1, BATCH)])

STEPS = {
    "steps_pkey": "id",
    "steps_of_flow": "flow",
    "steps_left": "flow",
    "steps_failed": "flow",
    "steps_until": "until_ms",
}
EDGES = {"edges_pkey": "from_step", "edges_in": "to_step"}
FLOWS = {"flows_pkey": "id", "flows_open": "id"}
NOTES = {"flow_notes_pkey": ""}
OF_FLOWS = STEPS | EDGES | FLOWS | NOTES
"""Any statement may go by these, asked for so."""

CONDITIONS = (
    "states",
    "kind",
    "pool",
    "tenant",
    "since_ms",
    "text",
    "outcome",
    "error_class",
)
ENDS = ("succeeded", "dead", "quarantined", "canceled")
OF_STATES = {f"jobs_{state}": "" for state in (*STATES, "waiting")}
RULES = {
    "flow_noted": Rule({"limit": 1000}, NOTES),
    "flow_overdue": Rule(
        {"now_ms": NOW_MS, "limit": 1000},
        {"steps_until": "until_ms"},
        in_order="steps_until",
    ),
    "lock_flows": Rule({"flows": IDS}, {}),
    "delete_flow_notes": Rule({"notes": IDS}, {"flow_notes_pkey": "id"}),
    "flow_heads": Rule({"flows": IDS}, {}),
    "flow_steps": Rule({"steps": IDS}, OF_STEP),
    "steps_before": Rule({"steps": IDS}, {}),
    "edges_out": Rule({"steps": IDS}, {}),
    "flows_left": Rule({"flows": IDS}, {}),
    "set_steps": Rule({"rows": places(4)}, {}),
    "cancel_members": Rule(
        {"rows": ENDINGS, "limit": 1000, "now_ms": NOW_MS}, OF_STEP | PKEY
    ),
    "stop_members": Rule({"steps": IDS}, OF_STEP | PKEY),
    "missed_members": Rule({"steps": IDS, "stopped": IDS}, OF_STEP),
    "bad_members": Rule({"steps": IDS}, OF_STEP),
    "erased_member": Rule({"steps": IDS, "ready": IDS}, OF_STEP | PKEY),
    "open_members": Rule(
        {"steps": IDS, "limit": 1000, "now_ms": NOW_MS}, OF_STEP | PKEY
    ),
    "copy_members": Rule({"steps": IDS, "generation": 2, "now_ms": NOW_MS}, OF_STEP),
    "replace_members": Rule({"steps": IDS, "generation": 2}, OF_STEP | PKEY),
    "keep_added": Rule({"steps": IDS}, OF_STEP | PKEY),
    "added_members": Rule({"steps": IDS}, OF_STEP),
    "drop_added": Rule({"rows": places(2)}, PKEY),
    "renew_members": Rule({"ids": IDS}, PKEY),
    "lock_members": Rule({"steps": IDS}, OF_STEP | PKEY),
    "given_members": Rule({"flow": 7, "ids": IDS}, PKEY),
    "left_out": Rule({"flow": 7, "reasons": json.dumps(["x"])}, OF_STEP),
    "running_member": Rule({"steps": IDS}, OF_STEP),
    "count_anew": Rule({"steps": IDS, "limit": 100_000}, OF_STEP),
    "note_waiting": Rule({"ids": IDS}, PKEY),
    "wait_for_flows_of": Rule({"ids": IDS}, PKEY),
    "replayable": Rule({"ids": IDS}, OF_STEP | PKEY),
    "erase_flows": Rule({"ids": IDS}, OF_STEP | PKEY),
    "unfinished_member": Rule({"flow": 7}, OF_STEP),
    "members_of_flow": Rule({"flow": 7, "limit": 1000}, OF_STEP),
    "step_results": Rule(
        {"flow": 7, "numbers": None, "after_id": 0, "limit": 1000}, OF_STEP | PKEY
    ),
    "hold_members": Rule({"flow": 7, "now_ms": NOW_MS}, OF_STEP | PKEY),
    "approve_member": Rule(
        {"id": 7, "now_ms": NOW_MS, "codec": None, "result": b"1"}, PKEY
    ),
    "lease_candidates": Rule(
        {"run_id": "run-1", "now_ms": NOW_MS}
        | {"pool": "cpu", "kinds": KINDS, "limit": 64, "reach": 256},
        RUNNABLE | PKEY,
        in_order="jobs_runnable",
    ),
    "count_runnable": Rule(
        {"pool": "cpu", "kinds": KINDS, "limit": 64, "now_ms": NOW_MS}, RUNNABLE
    ),
    "lease_jobs": Rule({"rows": places(2), "now_ms": NOW_MS} | RUN, PKEY),
    "hold_leases": Rule({"rows": places(2)}, PKEY),
    "held_elsewhere": Rule({"rows": places(2)}, PKEY),
    "settle_jobs": Rule({"rows": places(20), "blobs": b"", "now_ms": NOW_MS}, PKEY),
    "succeed_jobs": Rule({"rows": places(10), "blobs": b""}, PKEY),
    "insert_attempts": Rule({"rows": places(18)}, PKEY),
    "keep_outputs": Rule({"rows": places(4)}, PKEY),
    "record_beats": Rule({"rows": places(6), "blobs": b"", "now_ms": NOW_MS}, PKEY),
    "begin_attempts": Rule({"rows": places(4)}, PKEY),
    "note_completed": Rule({"rows": places(18)}, PKEY),
    "complete_job": Rule({"id": 7, "token": 7, "now_ms": NOW_MS}, PKEY),
    "store_result": Rule({"id": 7, "result": b"1"}, PKEY),
    "is_attempt": Rule({"id": 7, "token": 7}, PKEY),
    "expire_jobs": Rule({"ids": IDS, "now_ms": NOW_MS}, PKEY),
    "raw_jobs": Rule({"ids": IDS}, PKEY),
    "hold_jobs": Rule({"ids": IDS}, PKEY),
    "next_jobs": Rule({"after": 7, "limit": 500}, PKEY),
    "due_jobs": Rule(
        {"now_ms": NOW_MS, "limit": 1000}, PENDING, in_order="jobs_pending"
    ),
    "cancel_waiting": Rule({"ids": IDS, "now_ms": NOW_MS}, PKEY),
    "request_cancel": Rule({"ids": IDS}, PKEY),
    "revive_jobs": Rule(
        {"ids": IDS, "states": '["pending", "dead"]', "now_ms": NOW_MS}
        | {"memory_bytes": None},
        PKEY | {"jobs_unique": "kind unique_text"},
    ),
    "schedules_due": Rule({}, PKEY | OF_SCHEDULE),
    "lock_due_schedules": Rule(
        {"now_ms": NOW_MS, "ahead_ms": NOW_MS, "limit": 100}, PKEY | OF_SCHEDULE
    ),
    "open_ticks": Rule({"ids": IDS}, PKEY | OF_SCHEDULE),
    "find_ticks": Rule({"name": "poll", "limit": 100}, PKEY | OF_SCHEDULE),
    "tick_of_job": Rule({"id": 7}, PKEY),
    "find_schedules": Rule({"name": "poll"}, PKEY | OF_SCHEDULE),
    "hold_retries": Rule({"ids": IDS}, PKEY),
    "cancel_for_tick": Rule({"ids": IDS, "now_ms": NOW_MS}, PKEY),
    "number_jobs": Rule({"rows": places(2)}, PKEY),
    "reopen_ticks": Rule({"ids": IDS}, PKEY | OF_SCHEDULE),
    "ticks_of_jobs": Rule({"ids": IDS}, PKEY | OF_SCHEDULE),
    "waiting_of_tenant": Rule(
        {"tenant": "acme", "most": 100, "now_ms": NOW_MS}, {"jobs_of_tenant": "tenant"}
    ),
    "ended_lately": Rule(
        {"pool": "cpu", "kind": None, "tenant": None, "most": 1000}
        | {"within_ms": 60_000, "now_ms": NOW_MS},
        {"jobs_succeeded": "finished_at_ms"},
    ),
    "find_stragglers": Rule(
        {"rows": STRAGGLING, "limit": 100},
        {"jobs_runnable": "pool kind priority"},
    ),
    "last_of_priority": Rule(
        {"pool": "cpu", "kind": "shop.thumbnail", "priority": 0},
        {"jobs_runnable": "pool kind priority"},
        in_order="jobs_runnable",
    ),
    "hold_stragglers": Rule({"ids": IDS, "kinds": KINDS}, PKEY),
    "stamp_jobs": Rule({"rows": places(3)}, PKEY),
    "jobs_of_lanes": Rule({"ids": IDS, "limit": 100}, IN_LANE),
    "lane_heads": Rule(
        {"ids": IDS, "limit": 64, "now_ms": NOW_MS} | RUN, IN_LANE | PKEY
    ),
    "lanes_of_jobs": Rule(
        {"after": 7, "limit": 100, "aged": AGED, "fair": '{"cpu": "tenant"}'},
        IN_LANE | LANES | SHARE | {"shares_waiting": "pool kind priority who"},
        in_order="jobs_in_lane",
    ),
    "join_shares": Rule({"rows": TURNS}, SHARE),
    "spend_shares": Rule({"rows": TURNS}, SHARE),
    "fair_lanes": Rule(
        {"pool": "cpu", "kinds": KINDS, "now_ms": NOW_MS, "aging_ms": 60_000.0}
        | {"fair": "tenant", "spent": IDS, "depth": 64, "limit": 64, "each": 4},
        {"shares_waiting": "pool kind", "lanes_open": "pool kind"}
        | {"lanes_of_tenant": "pool kind"},
    ),
    "leave_shares": Rule(
        {"rows": json.dumps([[n, "tenant"] for n in range(64)])},
        {"shares_pkey": "id", "lanes_open": "pool kind"}
        | {"lanes_of_tenant": "pool kind"},
    ),
    "oldest_in_lanes": Rule(
        {"pool": "cpu", "kinds": KINDS, "limit": 64, "now_ms": NOW_MS},
        IN_LANE | {"lanes_open": "pool kind"},
    ),
    "put_report": Rule(RUN | {"now_ms": NOW_MS, "report": "{}"}, {"reports_pkey": ""}),
    "get_reports": Rule({}, {"reports_pkey": "run_id", "runs_open": ""}),
    "join_lanes": Rule({"ids": IDS, "aged": AGED}, IN_LANE | LANES),
    "leave_lanes": Rule({"rows": places(5)}, IN_LANE | LANES),
    "open_lanes": Rule(
        {"pool": "cpu", "kinds": KINDS, "limit": 64, "now_ms": NOW_MS},
        {"lanes_open": "pool kind"},
        in_order="lanes_open",
    ),
    "lanes_look": Rule({}, {"lanes_opening": ""}, in_order="lanes_opening"),
    "lanes_opening": Rule(
        {"kinds": json.dumps([["cpu", "shop.thumbnail"]]), "limit": 1000},
        {"lanes_opening": ""},
        in_order="lanes_opening",
    ),
    "open_due_lanes": Rule(
        {"now_ms": NOW_MS, "limit": 1000}, {"lanes_opening": "open_at_ms"}
    ),
    "lock_lanes": Rule({"ids": IDS}, LANES),
    "free_lanes": Rule(
        {"bucket": 7, "limit": 64},
        {"lanes_blocked": "blocked_by", "lanes_in_turn": "blocked_by"},
    ),
    "wanted_buckets": Rule({"ids": IDS}, {"lanes_blocked": "blocked_by"}),
    "lock_buckets": Rule({"ids": IDS}, BUCKETS),
    "try_buckets": Rule({"ids": IDS}, BUCKETS),
    "change_buckets": Rule({"rows": places(5)}, BUCKETS),
    "contested_buckets": Rule(
        {"before_ms": NOW_MS, "limit": 100},
        {"buckets_contested": "checked_at_ms"},
        in_order="buckets_contested",
    ),
    "permits_in_use": Rule({"ids": IDS}, {"permits_pkey": "bucket"}),
    "sweep_permits": Rule(
        {"ids": IDS}, {"permits_pkey": "bucket", "runs_pkey": "id"} | PKEY
    ),
    "free_permits": Rule({"tokens": IDS}, {"permits_of_token": "token"}),
    "free_ended": Rule(
        {"tokens": IDS, "capped": KINDS},
        {"permits_of_token": "token"} | PKEY | BUCKETS,
    ),
    "return_permits": Rule({"rows": places(2)}, {"permits_of_token": "token"}),
    "permits_asked": Rule(
        {"rows": places(4)} | RUN, {"permits_pkey": "bucket token n"} | PKEY
    ),
    "completed_in_use": Rule(
        {"ids": IDS}, PKEY | {"permits_of_token": "token", "runs_pkey": "id"}
    ),
    "delete_jobs": Rule({"ids": IDS}, PKEY),
    "delete_attempts": Rule({"ids": IDS}, OF_JOB),
    "history_of": Rule({"rows": places(2)}, OF_JOB),
    "get_attempts": Rule({"id": 7}, OF_JOB),
    "get_job": Rule({"id": 7}, PKEY | TEXTS),
    "get_payload": Rule({"id": 7}, PKEY),
    "get_trace": Rule({"id": 7}, PKEY),
    "get_overdue": Rule({"now_ms": 7}, PENDING),
    "stray_jobs": Rule(
        {"most": 1000, "limit": 10}, {"jobs_waiting": "", "debounced_pkey": "job_id"}
    ),
    "ids_of_key": Rule({"key": "k7"}, {"jobs_key": ""}, in_order="jobs_key"),
    "last_ends": Rule({"limit": 100}, PKEY | {"attempts_pkey": ""}, "attempts_pkey"),
    "suspects": Rule({}, PKEY),
    "misfits": Rule({}, PKEY),
    "look_newest": Rule(
        {"before_id": ROWS, "window": 1000}, {"jobs_pkey": "id"}, in_order="jobs_pkey"
    ),
    "look_matching": Rule({"ids": IDS, **dict.fromkeys(CONDITIONS)}, PKEY),
    "look_records": Rule({"ids": IDS}, PKEY | {"jobs_unique": "kind unique_text"}),
    "look_ended": Rule(
        {
            **dict.fromkeys(ENDS, True),
            "at_ms": NOW_MS,
            "before_id": ROWS,
            "window": 1000,
        },
        {f"jobs_{state}": "finished_at_ms" for state in ENDS},
    ),
    "look_states": Rule(
        {**dict.fromkeys(STATES, True), "waiting": True, "window": 1000}, OF_STATES
    ),
    "look_tally": Rule({"most": 1000}, OF_STATES),
    "get_output": Rule({"id": 7}, PKEY | {"running_pkey": "job_id"}),
    "show_running": Rule({"rows": places(4), "now_ms": NOW_MS}, PKEY),
    "leases_of": Rule(RUN, {"jobs_leased": "supervisor"}),
    "count_leases": Rule(RUN, {"jobs_leased": "supervisor"}),
    "cancel_requests": Rule(RUN, {"jobs_asked_to_stop": "supervisor"}),
    "promote_due": Rule(
        {"now_ms": NOW_MS, "limit": 1000}, PENDING | PKEY, in_order="jobs_pending"
    ),
    "count_due": Rule(
        {"now_ms": NOW_MS, "promoted": 1000, "pool": "cpu", "kinds": KINDS},
        PENDING,
        in_order="jobs_pending",
    ),
    "next_due": Rule({}, {"jobs_pending": ""}, in_order="jobs_pending"),
    "lease_status": Rule(
        {"now_ms": NOW_MS} | RUN,
        {"runs_pkey": "id", "jobs_expiring": "expires_at_ms", "jobs_pending": ""},
        in_order="jobs_pending",
    ),
    "expired_jobs": Rule(
        {"now_ms": NOW_MS, "limit": 1000},
        {"jobs_expiring": "expires_at_ms"},
        in_order="jobs_expiring",
    ),
    "key_holders": Rule({"rows": NAMES}, {"jobs_key": "kind key"}),
    "unique_holders": Rule({"rows": NAMES}, {"jobs_unique": "kind unique_text"}),
    "text_holders": Rule({"rows": NAMES}, PKEY | TEXTS),
    "hold_open": Rule({"ids": IDS}, PKEY),
    "revise_jobs": Rule({"rows": places(15), "blobs": b""}, PKEY),
    "begin_waiting": Rule({"ids": IDS}, PKEY),
    "clear_waits": Rule({"rows": NAMES}, PKEY | TEXTS),
    "waiting_texts": Rule(
        {"after_id": 0, "limit": 1000}, PKEY | TEXTS | {"debounced_waiting": "job_id"}
    ),
    "keep_texts": Rule({"ids": IDS}, PKEY | TEXTS),
    "end_waits": Rule({"ids": IDS}, PKEY | TEXTS),
    "delete_debounced": Rule({"ids": IDS}, TEXTS),
    **{
        f"old_{state}": Rule(
            OLD, {f"jobs_{state}": "finished_at_ms"}, in_order=f"jobs_{state}"
        )
        for state in ("succeeded", "canceled", "dead", "quarantined")
    },
    **{
        f"surplus_{state}": Rule(
            {"count": 100, "limit": 1000},
            {f"jobs_{state}": ""} | PKEY,
            in_order=f"jobs_{state}",
        )
        for state in ("succeeded", "canceled", "dead", "quarantined")
    },
}

KEPT = (
    *("lease_candidates", "lease_jobs", "lease_status"),
    *("flow_noted", "flow_overdue", "lock_flows", "delete_flow_notes", "flow_heads"),
    *("flow_steps", "steps_before", "edges_out", "flows_left", "set_steps"),
    "open_members",
)
"""Whose plans are kept for as long as a connection."""
ALONE = {
    *("text_holders", "hold_open", "revise_jobs", "begin_waiting", "clear_waits"),
    *("key_holders", "unique_holders", "complete_job", "store_result", "is_attempt"),
    *("count_runnable", "count_due", "cancel_requests"),
    *("get_job", "get_payload", "get_attempts", "get_overdue", "stray_jobs"),
    *("waiting_texts", "step_results", "oldest_in_lanes", "look_tally", "look_states"),
    *("get_reports", "get_trace", "get_output", "find_ticks", "tick_of_job"),
    *("look_newest", "look_matching", "look_records", "look_ended"),
    *("next_jobs", "raw_jobs", "ids_of_key", "last_ends", "suspects", "misfits"),
}
"""What also runs outside of our own transactions, where the planner has its own way:
on a caller's connection, or to read."""


class Table(NamedTuple):
    """A queue whose statistics are wrong, and a connection to it."""

    connection: psycopg.Connection
    schema: str
    is_known: bool
    """Its statistics are known. Before, a sort is no fault: autovacuum updates
    a table after twenty thousand changes."""

    def do(self, text, **values):
        """Run a statement that is written here, on our own schema."""
        parts = {name: sql.Literal(value) for name, value in values.items()}
        schema = sql.Identifier(self.schema)
        return self.connection.execute(sql.SQL(text).format(schema=schema, **parts))

    def fill(self, state, rows=ROWS):
        """Store jobs in a state without updating statistics."""
        names, values = STATES[state].keys(), STATES[state].values()
        more = ["".join(f", {one}" for one in ones) for ones in (names, values)]
        self.do(FILL % tuple(more), rows=rows, state=state)

    def move(self, state):
        """Put all jobs into a state without updating statistics."""
        has = STATES[state]
        rest = "".join(f", {column} = {value}" for column, value in has.items())
        self.do(f"UPDATE {{schema}}.jobs SET state = {{state}}{rest}", state=state)  # noqa: S608 - ours

    def analyze(self):
        """Update the server's statistics."""
        self.do("ANALYZE {schema}.jobs")
        self.do("ANALYZE {schema}.attempts")


@contextmanager
def jobs_in(situation):
    """Make a queue in a situation; no tested statement is ever executed on it."""
    known, now = SITUATIONS[situation]
    with new_queue(is_known=bool(known)) as table:
        if known == "":
            table.analyze()
        table.fill(known or "pending")
        table.do(FILL_ATTEMPTS, rows=ROWS)
        if known:
            table.analyze()
        table.move(now)
        yield table


@contextmanager
def new_queue(*, is_known=True):
    """Make an empty queue without autovacuum."""
    url = server().fresh_url()
    open_store(url).close()
    with server().connect() as connection:
        table = Table(connection, query_of(url)["schema"], is_known=is_known)
        for name in BIG:
            table.do(
                f"ALTER TABLE {{schema}}.{name} SET "
                "(autovacuum_enabled = off, toast.autovacuum_enabled = off)"
            )
        yield table
    server().drop(url)


@pytest.fixture(scope="module", params=SITUATIONS)
def table(request):
    with jobs_in(request.param) as table:
        yield table


@contextmanager
def surroundings(table, name):
    """Begin a transaction as the store does, if the statement runs in one."""
    if name in ALONE:
        yield
        return
    ahead = ["begin", "begun", *([] if name in KEPT else ["plan_anew"])]
    for one in ahead:
        table.connection.execute(queries_of(table.schema)[one].encode())
    try:
        yield
    finally:
        table.connection.execute("ROLLBACK")


def plan_with_values(table, name):
    """Return the plan of a query whose parameters are known to the planner."""
    query = queries_of(table.schema)[name]
    with surroundings(table, name):
        found = table.connection.execute(
            f"EXPLAIN (FORMAT JSON) {query}".encode(), RULES[name].parameters or None
        )
        return found.fetchone()[0][0]["Plan"]


def plan_when_prepared(table, name):
    """Return the plan of the sixth execution.

    A generic one may be kept from then on.
    """
    given = RULES[name].parameters
    order = list(given)
    query = re.sub(
        r"%\((\w+)\)s",
        lambda match: f"${order.index(match[1]) + 1}",
        queries_of(table.schema)[name],
    ).replace("%%", "%")
    values = sql.SQL(", ").join(map(sql.Literal, given.values()))
    call = sql.SQL("({})").format(values) if given else sql.SQL("")
    explain = sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE seen{}").format(call)
    table.connection.execute(f"PREPARE seen AS {query}".encode())
    try:
        with surroundings(table, name):
            for _ in range(6):
                found = table.connection.execute(explain, prepare=False).fetchone()
    finally:
        table.connection.execute("DEALLOCATE seen")
    return found[0][0]["Plan"]


def nodes_of(plan, above=()):
    """Yield each node of a plan with the types of the nodes above it."""
    yield plan, above
    for part in plan.get("Plans", ()):
        yield from nodes_of(part, (*above, plan["Node Type"]))


def faults_of(plan, rule, *, is_sort_a_fault=True):
    """Return what a plan does although the rule forbids it."""
    found = []
    for node, above in nodes_of(plan):
        kind = node["Node Type"]
        if kind == "Seq Scan" and node["Relation Name"] in BIG:
            found.append(f"reads all of {node['Relation Name']}")
        index, condition = node.get("Index Name", ""), node.get("Index Cond", "")
        if not index.startswith(BIG):
            continue
        wanted = (OF_FLOWS | rule.indexes).get(index)
        if wanted is None:
            found.append(f"goes by {index} ({condition})")
            continue
        missing = [
            column
            for column in wanted.split()
            if not re.search(rf"\b{column}\b", condition)
        ]
        if missing:
            found.append(f"walks {index} without {missing} ({condition})")
        if is_sort_a_fault and index == rule.in_order and is_sorted_above(kind, above):
            found.append(f"sorts all that {index} holds")
    return found


def is_sorted_above(kind, above):
    """Say whether rows are sorted before they reach the nearest LIMIT."""
    if kind == "Bitmap Index Scan":
        return True
    for name in reversed(above):
        if name in {"Limit", "Aggregate"}:
            return False
        if "Sort" in name:
            return True
    return False


@pytest.mark.parametrize("plan_of", [plan_with_values, plan_when_prepared])
def test_wrong_statistics_ruin_no_query_plan(table, plan_of):
    """By the id or the requested part of its index, never a scan of a state."""
    faults = {
        name: faults_of(plan_of(table, name), rule, is_sort_a_fault=table.is_known)
        for name, rule in RULES.items()
    }
    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.parametrize("state", ["runnable", "succeeded"])
def test_what_runs_outside_of_our_transactions_reads_no_table_that_was_never_analyzed(
    state,
):
    """There a scan is forbidden to no planner: the statements leave it no reason."""
    with new_queue(is_known=False) as table:
        table.fill(state, 2_000)
        table.do(FILL_ATTEMPTS, rows=2_000)
        faults = {
            name: faults_of(
                plan_with_values(table, name), RULES[name], is_sort_a_fault=False
            )
            for name in ALONE
        }
    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.parametrize("analyzed", ["never", "when empty", "when all waited"])
def test_a_fold_goes_by_no_index_of_members_that_have_ended(analyzed):
    """Of a fan-in's ten thousand members all but one have ended."""
    with new_queue(is_known=False) as table:
        if analyzed == "when empty":
            table.analyze()
        table.do("SET session_replication_role = replica")
        table.do(FILL_MEMBERS, rows=10_000)
        if analyzed == "when all waited":
            table.analyze()
        table.do(END_MEMBERS, rows=10_000)
        faults = {
            name: faults_of(plan_of(table, name), RULES[name]._replace(indexes=UNENDED))
            for name in FOLDS
            for plan_of in (plan_with_values, plan_when_prepared)
        }
    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.parametrize("is_counted", [False, True])
@pytest.mark.parametrize("rows", [0, 5, 40, 400])
def test_a_kept_plan_suits_a_small_table_and_a_large_one(rows, is_counted):
    """It uses the id or its own index although a scan would be cheaper now."""
    with new_queue() as table:
        if rows:
            table.fill("runnable", rows)
        if is_counted:
            table.do("VACUUM ANALYZE {schema}.jobs")
        faults = {
            name: faults_of(plan_when_prepared(table, name), RULES[name])
            for name in KEPT
        }
    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("SELECT payload FROM {schema}.jobs", "reads all of jobs"),
        (
            """SELECT j.id FROM {schema}.jobs AS j
            JOIN generate_series(1, 500) AS n ON j.id = n WHERE state = 'leased'""",
            "goes by jobs_leased",
        ),
    ],
)
def test_the_plan_check_does_find_faults(text, fault):
    """What the guards in the statements prevent does happen without them."""
    with jobs_in("no leased when analyzed") as table:
        found = table.do(f"EXPLAIN (FORMAT JSON) {text}").fetchone()
    assert fault in str(faults_of(found[0][0]["Plan"], Rule({}, PKEY)))
