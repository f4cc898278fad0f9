"""conf/postgres/roles.sql: each role can do its work, and nothing beyond it."""

import contextlib
import json
import secrets
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest
from click.testing import CliRunner

from jobpool import JobPool
from jobpool.cli.root import cli
from jobpool.core.config.settings import Retention
from jobpool.core.formats import CODECS, FLOWS
from jobpool.core.jobs.job import Debounce, JobState, OnConflict
from jobpool.errors import FeatureHeldBack, StoreRefused
from jobpool.operations.erasure import Erase
from jobpool.operations.jobs import Cancel
from jobpool.operations.operate import operate
from jobpool.operations.principal import Principal, Role
from jobpool.operations.queue import Enqueue
from jobpool.operations.selection import Selection
from jobpool.store.opening import open_store
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.operating import AuditFilter, Filter
from support.postgres.server import binaries, libpq_url, query_of, server, with_query
from support.store.flows import step, store_flow
from support.store.storing import (
    begin_run,
    ended,
    kind_record,
    lease,
    new_job,
    succeeded,
)

ROLES_SQL = Path(__file__).parents[3] / "conf" / "postgres" / "roles.sql"
GROUPS = (
    "jobpool_supervisor",
    "jobpool_producer",
    "jobpool_replacer",
    "jobpool_viewer",
)
PRODUCER = Principal(who="app", role=Role.ADMIN, origin="a test")
PSQL_S_MAX = 90


def run_roles_sql(url):
    """Run the file as its head says, for the schema of a URL."""
    return subprocess.run(
        [
            binaries() / "psql",
            "--no-psqlrc",
            f"--set=schema={query_of(url)['schema']}",
            f"--file={ROLES_SQL}",
            libpq_url(server().admin_url),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=PSQL_S_MAX,
    )


def connected(url):
    """Connect as a URL's role; names are looked up in the URL's schema."""
    return server().connect(url, options=f"-csearch_path={query_of(url)['schema']}")


@pytest.fixture(scope="module")
def queue_url():
    """A queue that a superuser has migrated, with the roles as shipped."""
    url = server().fresh_url(server().admin_url)
    open_store(url).close()
    done = run_roles_sql(url)
    assert done.returncode == 0, done.stderr
    yield url
    server().drop(url)


@pytest.fixture(scope="module")
def url_of(queue_url):
    """The queue's URL for a new login in one of the groups."""
    made = []

    def login(group):
        name, word = f"t_{secrets.token_hex(6)}", secrets.token_hex(8)
        with server().connect() as admin:
            admin.execute(
                f"CREATE ROLE {name} LOGIN PASSWORD '{word}'"
                + (f" IN ROLE {group}" if group else "")
            )
        made.append(name)
        parts = urlsplit(server().tcp_url)
        address = f"{parts.hostname}:{parts.port or 5432}{parts.path}"
        return with_query(
            f"postgresql://{name}:{word}@{address}?{parts.query}",
            schema=query_of(queue_url)["schema"],
        )

    yield login
    with server().connect() as admin:
        for name in made:
            admin.execute(f"DROP ROLE {name}")


@pytest.fixture(scope="module")
def stores(url_of):
    """A store opened by each of the groups."""
    opened = {}
    try:
        for group in GROUPS:
            opened[group.removeprefix("jobpool_")] = open_store(url_of(group))
        yield opened
    finally:
        for store in opened.values():
            store.close()


def attempts_of(store):
    """Return each operation that changes something, by name."""
    return {
        "enqueue": lambda: store.enqueue([new_job()]),
        "begin_run": lambda: begin_run(store, secrets.token_hex(4)),
        "lease": lambda: lease(store),
        "renew": lambda: store.renew("run-1", 60.0),
        "revive": lambda: store.revive([1], [JobState.DEAD]),
        "pause": lambda: store.pause(pool="nobody"),
        "resume": lambda: store.resume(pool="nobody"),
        "prune": lambda: store.prune(Retention()),
        "cancel": lambda: store.cancel([10**6]),
    }


PRODUCERS_OWN = {"enqueue", "cancel"}
OPERATIONS = sorted(attempts_of(None))


def test_a_supervisor_may_use_the_whole_protocol(stores):
    """Runs, leases, settlements, operators' actions and pruning need no other role."""
    store = stores["supervisor"]
    begin_run(store, kinds=[kind_record()])
    for name, attempt in attempts_of(store).items():
        if name != "lease":
            attempt()
    for granted in (leases := lease(store)):
        said = msgspec.structs.replace(
            succeeded(granted, output="said"), keeps_output=True
        )
        receipts = store.settle([said])
        assert list(receipts) == [Receipt.ACCEPTED]
        assert store.kept_output(granted.id).output == "said"
    assert leases
    store.drop_outputs(0)
    assert store.capacity(2**60)
    assert store.concerns() == []
    assert "schema_version" in store.describe()
    store.end_run("run-1")


def test_a_producer_enqueues_and_gets_the_result(stores):
    """A key finds its job again, unique holds, a success's result can be read."""
    producer, supervisor = stores["producer"], stores["supervisor"]
    job = new_job(key="order-7", unique="one")
    (first,) = producer.enqueue([job])
    (again,) = producer.enqueue([job])
    assert first.created
    assert (again.id, again.created) == (first.id, False)
    begin_run(supervisor, "run-2")
    settled = [
        granted for granted in lease(supervisor, "run-2") if granted.id == first.id
    ]
    supervisor.settle([succeeded(granted) for granted in settled])
    assert producer.get(first.id).result == b'{"ok":1}'


def test_a_producer_may_enqueue_by_sql_alone(stores, url_of):
    """The function runs with its rights; a viewer has none."""
    begin_run(stores["supervisor"], "run-sql", kinds=[kind_record()])
    call = "SELECT enqueue('shop.thumbnail', '{}', key => 'sql')"
    with connected(url_of("jobpool_producer")) as connection:
        first = connection.execute(call).fetchone()
        assert connection.execute(call).fetchone() == first
    with (
        connected(url_of("jobpool_viewer")) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(call.replace("sql", "viewer"))


def test_a_producer_may_use_codecs_but_not_ask_for_them(stores):
    """A supervisor asks; until it is granted the producer is told what it waits for."""
    producer, supervisor = stores["producer"], stores["supervisor"]
    job = new_job(payload=b'"encoded:AAEC/w=="', codec="fernet")
    with pytest.raises(StoreRefused, match="this role may not ask for them; start"):
        producer.enqueue([job])
    begin_run(supervisor, "old", format=1)
    with pytest.raises(FeatureHeldBack):
        supervisor.require(CODECS)
    with pytest.raises(FeatureHeldBack, match=r"codecs wait for .* pid 1:"):
        producer.enqueue([job])
    supervisor.end_run("old")
    supervisor.grant_format()
    (stored,) = producer.enqueue([job])
    assert producer.get(stored.id).codec == "fernet"


def test_a_producer_cancels(stores):
    """`Job.cancel()` is the application's."""
    (job,) = stores["producer"].enqueue([new_job(kind="shop.other")])
    assert stores["producer"].cancel([job.id]) == 1
    assert stores["producer"].get(job.id).state is JobState.CANCELED


def test_a_producer_has_schedules_for_its_users(stores, url_of):
    """Put, run, paused, made up for and removed, each with its row in the trail."""
    jobs = JobPool(url_of("jobpool_producer"))
    work = jobs.job("cpu", kind="shop.digest")(lambda: None)
    schedules, day_s = jobs.schedules, 86400
    assert schedules.put("digest", work.call(), cron="0 7 * * *")
    assert not schedules.put("digest", work.call(), cron="0 7 * * *")
    job = schedules.run("digest")
    assert schedules.get("digest").last.job_id == job.id
    assert schedules.backfill("digest", 10 * day_s, 12 * day_s) == 2
    assert schedules.pause("digest", "1h")
    (row,) = stores["viewer"].schedules("digest")
    assert row.paused_until_ms - row.paused_ms == 3_600_000
    assert schedules.resume("digest", catch_up=True)
    assert schedules.remove("digest")
    jobs.close()
    made = [row.action for row in stores["viewer"].audits(AuditFilter(), 6)]
    assert made == [
        f"schedules {verb}"
        for verb in ("remove", "resume", "pause", "backfill", "run", "put")
    ]


def test_a_producers_cancellation_is_in_the_audit_trail(stores, url_of):
    """Written by its own role, which can neither read the trail nor rewrite it."""
    url = url_of("jobpool_producer")
    jobs = JobPool(url)
    work = jobs.job("cpu", kind="shop.canceled")(lambda: None)
    assert work.enqueue().cancel(note="not wanted")
    jobs.close()
    (row,) = stores["viewer"].audits(AuditFilter(action="cancel"), 10)
    assert (row.note, row.jobs) == ("not wanted", 1)
    with connected(url) as connection:
        for statement in (
            "SELECT note FROM audit",
            "UPDATE audit SET note = 'wanted'",
            "DELETE FROM audit",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_a_producers_bulk_has_a_row_for_each_batch(stores, monkeypatch):
    """It may not extend a row: that right would let it rewrite what others did."""
    monkeypatch.setattr("jobpool.operations.jobs._BATCH", 2)
    batch = [new_job(kind="shop.bulk")] * 5
    operate(
        stores["producer"], PRODUCER, Enqueue(kind="k", pool="p", batches=[batch] * 2)
    )
    cancel = Cancel(jobs=Selection(which=Filter(kind="shop.bulk")))
    done = operate(stores["producer"], PRODUCER, cancel)
    assert (done.jobs, done.matched) == (10, 10)
    rows = stores["viewer"].audits(AuditFilter(who=PRODUCER.who), 10)
    assert [(row.action, row.jobs) for row in rows] == [
        *[("cancel", 2)] * 5,
        *[("enqueue", 5)] * 2,
    ]
    assert len({row.target for row in rows}) == 7


def test_a_producer_is_shown_a_job_without_the_trail(stores, url_of):
    """It may not read that; everything else is there, and the rest is said."""
    (job,) = stores["producer"].enqueue([new_job()])
    words = ["show", str(job.id), "--json", "--store", url_of("jobpool_producer")]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["audit"] is None
    assert "what people did to it is left out" in result.stderr


@pytest.mark.parametrize("operation", sorted({*OPERATIONS} - PRODUCERS_OWN))
def test_a_producer_may_do_nothing_else(stores, operation):
    """Leases, runs, operators' actions and deletions are refused, with the remedy."""
    with pytest.raises(StoreRefused, match=r"conf/postgres/roles\.sql"):
        attempts_of(stores["producer"])[operation]()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_viewer_changes_nothing(stores, operation):
    """A viewer is refused everything but reading, with the remedy."""
    with pytest.raises(StoreRefused, match=r"conf/postgres/roles\.sql"):
        attempts_of(stores["viewer"])[operation]()


@pytest.mark.parametrize("role", ["viewer", "producer"])
def test_roles_that_may_read_see_everything(stores, role):
    """`status`, `list`, `show` and `doctor` work for viewers and producers."""
    (job,) = stores["supervisor"].enqueue([new_job(kind="shop.seen")])
    store = stores[role]
    assert store.get(job.id).kind == "shop.seen"
    assert store.kept_output(job.id) is None
    assert store.tick_of(job.id) is None
    assert {one.name for one in store.capacity(2**60)} >= {"connections", "indexes"}
    assert store.payload(job.id) == b"{}"
    assert store.attempts(job.id) == []
    assert store.describe()
    for query in (store.stats, store.figures, store.waiting, store.kinds):
        query()
    store.sketches()
    store.open_runs()
    store.paused()


@pytest.mark.parametrize("role", ["viewer", "producer"])
@pytest.mark.parametrize("words", ["status --why", "top --once", "list", "flows"])
def test_commands_that_look_on_work_for_roles_that_may_read(url_of, role, words):
    """Whoever enqueues may see what waits, and why."""
    result = CliRunner().invoke(
        cli, [*words.split(), "--store", url_of(f"jobpool_{role}")]
    )
    assert result.exit_code == 0, result.output


def test_a_login_in_no_group_is_refused_with_the_remedy(url_of):
    """A login in no group cannot even open the store."""
    with pytest.raises(StoreRefused, match=r"conf/postgres/roles\.sql"):
        open_store(url_of(None))


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE {}.mine (x int)",
        "DROP TABLE {}.pauses",
        "TRUNCATE {}.jobs",
        "ALTER TABLE {}.jobs ADD COLUMN mine int",
        "SELECT setval('{}.tokens', 1)",
    ],
)
def test_only_the_owner_may_change_the_schema(url_of, group, statement):
    """No DDL, no TRUNCATE, no reset of tokens."""
    url = url_of(group)
    with (
        server().connect(url) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement.format(query_of(url)["schema"]))


def test_a_producer_cannot_forge_a_result(url_of):
    """Columns of leases and results are not writable for producers."""
    with connected(url_of("jobpool_producer")) as connection:
        for statement in (
            "UPDATE jobs SET result = NULL",
            "UPDATE jobs SET token = 1",
            "UPDATE jobs SET payload = NULL",
            "UPDATE jobs SET completed_token = 1",
            "DELETE FROM jobs",
            "INSERT INTO attempts DEFAULT VALUES",
            "INSERT INTO jobs (result) VALUES (NULL)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


@pytest.mark.parametrize("action", ["replace", "postpone"])
def test_a_producer_changes_no_arguments_of_a_stored_job(stores, action):
    """That is for those in jobpool_replacer; nothing is stored or changed."""
    shared = Debounce(OnConflict(action), until_start=False)
    new = new_job(kind="shop.kept", unique=action, payload=b"1", delay_ms=10**9)
    (first,) = stores["producer"].enqueue([new])
    again = msgspec.structs.replace(new, payload=b"2", debounce=shared)
    with pytest.raises(StoreRefused):
        stores["producer"].enqueue([again])
    assert stores["viewer"].payload(first.id) == b"1"


def test_a_producer_ends_a_job_that_another_one_follows(stores):
    """Its text goes to that one, which is leased then."""
    replacer, worker = stores["replacer"], stores["supervisor"]
    begin_run(worker, "ending")
    shared = Debounce(OnConflict.REPLACE, until_start=False)
    new = new_job(kind="shop.ended", unique="e", payload=b"1", debounce=shared)
    replacer.enqueue([new])
    (one,) = await_one(lambda: lease(worker, "ending", kinds={"cpu": ("shop.ended",)}))
    (two,) = replacer.enqueue([msgspec.structs.replace(new, payload=b"2")])
    assert two.state is JobState.WAITING
    worker.settle([ended(one, retry_in_s=3600.0)])
    cancel = Cancel(jobs=Selection(ids=(one.id,)))
    assert operate(stores["producer"], PRODUCER, cancel).is_made
    (other,) = await_one(
        lambda: lease(worker, "ending", kinds={"cpu": ("shop.ended",)})
    )
    assert other.id == two.id
    worker.settle([succeeded(other)])
    worker.end_run("ending")


def test_a_producer_has_flows_for_its_users_and_ends_none(stores, url_of):
    """It builds and cancels them; to pause is for operators, to end for supervisors."""
    supervisor, producer = stores["supervisor"], stores["producer"]
    supervisor.require(FLOWS)
    flow = store_flow(producer, step(0), step(1, 0), job={"kind": "shop.flows"})
    with pytest.raises(StoreRefused):
        producer.pause_flow(flow)
    assert supervisor.flow(flow).row.state == "open"
    assert producer.cancel_flow(flow)
    while supervisor.fold().is_short:
        pass
    assert supervisor.flow(flow).row.state == "canceled"
    for statement in (
        "UPDATE flows SET finished_at_ms = 1",
        "UPDATE flows SET name = 'mine'",
        "UPDATE steps SET state = 'done'",
    ):
        with (
            connected(url_of("jobpool_producer")) as hand,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            hand.execute(statement)


def test_a_replacer_replaces_postpones_and_follows_jobs(stores, url_of):
    """Also where the job that it follows ends by its own hand."""
    producer, worker = stores["replacer"], stores["supervisor"]
    begin_run(worker, "debouncing")

    def enqueue(payload, action="replace"):
        shared = Debounce(OnConflict(action), until_start=False)
        new = new_job(kind="shop.shared", unique="u", payload=payload, debounce=shared)
        (stored,) = producer.enqueue([msgspec.structs.replace(new, delay_ms=1)])
        return stored

    first = enqueue(b"1")
    assert enqueue(b"2").replaced
    assert enqueue(b"3", "postpone").postponed
    kinds = {"cpu": ("shop.shared",)}

    def granted():
        return lease(worker, "debouncing", kinds=kinds)

    (one,) = await_one(granted)
    assert (one.id, one.payload) == (first.id, b"3")
    second = enqueue(b"4")
    assert second.state is JobState.WAITING
    worker.settle([ended(one, retry_in_s=3600.0)])
    assert operate(producer, PRODUCER, Cancel(jobs=Selection(ids=(one.id,)))).is_made
    (two,) = await_one(granted)
    assert two.payload == b"4"
    worker.settle([succeeded(two)])
    worker.end_run("debouncing")


def await_one(ask):
    """Ask until something is granted."""
    deadline_s = time.monotonic() + 60
    while not (found := ask()):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return found


def test_a_producer_can_neither_lease_nor_succeed(stores, url_of):
    """The states that it may write are those of jobs that nobody runs."""
    (job,) = stores["producer"].enqueue([new_job(kind="shop.waiting")])
    with connected(url_of("jobpool_producer")) as connection:
        for state in ("leased", "succeeded", "quarantined"):
            with pytest.raises(psycopg.errors.CheckViolation):
                connection.execute(
                    "UPDATE jobs SET state = %s, finished_at_ms = "
                    "CASE %s WHEN 'leased' THEN NULL ELSE 1 END WHERE id = %s",
                    [state, state, job.id],
                )


def test_a_producer_enqueues_in_its_own_transaction(stores, url_of):
    """`options(connection=…)` needs no more rights than `enqueue()`."""
    store = stores["producer"]
    with connected(url_of("jobpool_producer")) as connection:
        with connection.transaction():
            (job,) = store.enqueue([new_job(kind="shop.mine")], connection)
        assert store.get(job.id).kind == "shop.mine"


def test_rights_on_later_tables_are_granted(queue_url, url_of):
    """A later migration's table needs no second run of the file."""
    with connected(queue_url) as admin:
        admin.execute("SET ROLE jobpool_owner")
        admin.execute("CREATE TABLE later (id bigserial, x int)")
    try:
        with connected(url_of("jobpool_supervisor")) as supervisor:
            supervisor.execute("INSERT INTO later (x) VALUES (1)")
        with connected(url_of("jobpool_viewer")) as viewer:
            assert viewer.execute("SELECT x FROM later").fetchall() == [(1,)]
        with (
            connected(url_of("jobpool_producer")) as producer,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            producer.execute("SELECT x FROM later")
    finally:
        with connected(queue_url) as admin:
            admin.execute("DROP TABLE later")


def test_a_second_run_of_the_file_changes_nothing(queue_url):
    """The file may be run after every migration."""
    before = acl_of(queue_url)
    done = run_roles_sql(queue_url)
    assert done.returncode == 0, done.stderr
    assert acl_of(queue_url) == before
    assert {owner for _, owner, _ in before} == {"jobpool_owner"}


def test_functions_are_the_owners_as_well(queue_url):
    """Else a later migration by the owner could not replace them."""
    with server().connect() as admin:
        owners = admin.execute(
            "SELECT proowner::regrole::text FROM pg_proc "
            "WHERE pronamespace = to_regnamespace(%s)",
            [query_of(queue_url)["schema"]],
        ).fetchall()
    assert set(owners) == {("jobpool_owner",)}


def test_the_file_may_be_run_before_the_first_migration():
    """Roles and schema exist then, and the owner can migrate."""
    url = server().fresh_url(server().admin_url)
    try:
        done = run_roles_sql(url)
        assert done.returncode == 0, done.stderr
        open_store(with_query(url, options="-crole=jobpool_owner")).close()
        assert {owner for _, owner, _ in acl_of(url)} == {"jobpool_owner"}
    finally:
        server().drop(url)


def acl_of(url):
    """Return name, owner and rights of everything in a schema."""
    with server().connect() as admin:
        return admin.execute(
            "SELECT relname, relowner::regrole::text, relacl::text FROM pg_class "
            "WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'v', 'S') "
            "ORDER BY relname",
            [query_of(url)["schema"]],
        ).fetchall()


def test_a_login_that_may_not_vacuum_is_told_so(stores):
    """What was erased may still stand in the files: nobody is to believe otherwise."""
    store = stores["supervisor"]
    (plain, skipped) = store.wipe()
    assert "--rewrite" in plain
    assert "may not VACUUM" in skipped
    (skipped,) = store.wipe(rewrite=True)
    assert "jobpool_owner" in skipped
    assert "jobs" in skipped


def test_a_producer_erases_nothing(stores, queue_url):
    """It may not read the trail, which is looked through first."""
    with contextlib.closing(open_store(queue_url)) as owner:
        (made,) = owner.enqueue([new_job(tenant="to be erased")])
        owner.cancel([made.id])
        action = Erase(jobs=Selection(ids=(made.id,)))
        with pytest.raises(StoreRefused, match="lacks a privilege"):
            operate(stores["producer"], PRODUCER, action)
        assert not owner.get(made.id).is_erased
