"""A store with something in it, and the command line called on it."""

import json

from click.testing import CliRunner

from jobpool.cli.root import cli
from jobpool.core.jobs.job import Evidence, JobState, NewJob, Settlement
from jobpool.core.jobs.outcome import CHARGES, Outcome
from jobpool.store.opening import open_store
from jobpool.store.records.runs import KindRecord, Run
from support.store.new_file import place_new_file
from support.store.storing import started

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "width": {"type": "integer"}},
        "required": ["path"],
        "additionalProperties": False,
    }
).encode()
KIND = KindRecord(
    kind="shop.thumbnail",
    pool="cpu",
    schema=SCHEMA,
    timeout_s=30.0,
    memory_bytes=512 * 2**20,
    max_attempts=5,
    max_crashes=3,
)
RUN = Run(
    id="run-1",
    host="host-1",
    boot_id="boot-1",
    pid=4711,
    pid_namespace=1,
    version="0",
    pools={"cpu": "2..8", "io": "16"},
)
CLEAR = "\x1b[2J\x9b1m\u202e"
"""What no terminal may ever receive from a job."""
CRASH = Evidence(
    reason=f"killed by signal 11{CLEAR}; crash 3 of 3",
    signal=11,
    peak_rss_bytes=530 * 2**20,
    cpu_s=3.1,
    duration_s=3.2,
    output=f"about to die{CLEAR}\nsecond line\n",
    stack='File "jobs.py", line 7 in thumbnail',
    slot="cpu/1",
)


def url_of(folder):
    return f"sqlite:///{folder}/jobpool.db"


def stored(folder):
    """Open the store of a folder, with one living supervisor that knows a kind."""
    place_new_file(folder / "jobpool.db")
    store = open_store(url_of(folder))
    store.begin_run(RUN, [KIND], 60.0)
    return store


def enqueue(store, count=1, **more):
    given = {"kind": KIND.kind, "pool": KIND.pool, "payload": b'{"path": "a.jpg"}'}
    job = NewJob(**(given | more))
    return [made.id for made in store.enqueue([job] * count)]


def settle(store, outcome, state, **more):
    """Lease one job and settle it; return its id."""
    (lease,) = store.lease(RUN.id, {"cpu": 1}, {"cpu": [KIND.kind]}).leases
    store.begin_attempts([started(lease, "cpu/1")])
    settlement = Settlement(
        id=lease.id,
        token=lease.token,
        state=state,
        outcome=outcome,
        charge=CHARGES[outcome],
        **more,
    )
    assert store.settle([settlement]) == [True]
    return lease.id


def quarantined(store):
    enqueue(store)
    return settle(store, Outcome.CRASHED, JobState.QUARANTINED, evidence=CRASH)


def dead(store):
    enqueue(store)
    evidence = Evidence(
        reason="failure 5 of 5",
        error_class="shop.VendorDown",
        error="no answer",
        traceback="Traceback (most recent call last):\n  ...",
    )
    return settle(store, Outcome.FAILED, JobState.DEAD, evidence=evidence)


def succeeded(store, result=b'{"ok":true}'):
    enqueue(store)
    return settle(store, Outcome.SUCCEEDED, JobState.SUCCEEDED, result=result)


def run(*arguments, stdin=None):
    """Call the command line in this process."""
    return CliRunner().invoke(cli, [str(a) for a in arguments], input=stdin)


def rows(result):
    """Return what ``--json`` printed."""
    return [json.loads(line) for line in result.stdout.splitlines()]
