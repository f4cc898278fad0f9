"""A codec from end to end: handlers see what they were sent, and nothing else does."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from jobpool import CodecMismatch, JobPool, JobUnsuccessful
from jobpool.core.application.handler_spec import HOOK_DEAD
from jobpool.core.jobs.job import NewJob
from jobpool.integrations.fernet import KEYS_VARIABLE, FernetCodec
from jobpool.store.records.operating import Filter
from support.postgres.server import libpq_url, query_of, server
from support.site.supervising import PRELUDE, Site
from support.waiting import wait_until

OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))
SECRET = "4711-0815-secret"
PLAIN = "seen-in-plain"
CODEC = """
from jobpool.integrations.fernet import FernetCodec

jobs = JobPool(codec=FernetCodec.from_environment())
"""
HANDLERS = """
@jobs.job("cpu", kind="pay", retry=AT_ONCE)
def pay(card: str, end: str = ""):
    with open(HERE / "seen", "a") as file:
        now = current()
        print(now.id, now.attempt, card, json.dumps(now.checkpoint), file=file)
    print("charging", card)
    print("to stderr", card, file=sys.stderr, flush=True)
    if end:
        now.heartbeat(progress=f"at {card}", checkpoint={"card": card})
    if end == "again" and now.attempt == 1:
        raise ValueError(f"no credit: {card}")
    if end == "snooze" and now.attempt == 1 and now.checkpoint is None:
        raise Snooze("1s", f"not yet: {card}")
    if end == "dead":
        raise GiveUp(card)
    if end == "crash":
        segfault()
    if end == "hang":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", card])
        time.sleep(60)
    if end == "complete":
        import psycopg

        with psycopg.connect(os.environ["SHOP_DATABASE"]) as connection:
            current().complete(connection, [card])
        return "not kept"
    if end == "nested":
        first = pay.options(key="nested").enqueue(card)
        again = pay.options(key="nested").enqueue(card)
        assert (first.id, again.created) == (again.id, False)
        try:
            pay.options(key="nested").enqueue("another")
        except jobpool.KeyConflict:
            return "told apart"
    return [card]


@jobs.on_dead
def died(job):
    with open(HERE / "hooks", "a") as file:
        print(job.id, job.arguments["card"], job.error, file=file)
    if current().attempt == 1:
        raise LookupError(f"nobody to tell of {job.arguments['card']}")
"""


@pytest.fixture(params=["sqlite", "postgres"])
def site(request, tmp_path):
    yield from made_site(request.param, tmp_path)


@pytest.fixture
def sqlite_site(tmp_path):
    yield from made_site("sqlite", tmp_path)


def made_site(database, tmp_path):
    site = Site(tmp_path, CODEC + HANDLERS)
    site.since_s = time.time()
    if database == "postgres":
        site.url = server().store_url()
    with site:
        yield site
    if database == "postgres":
        server().drop(site.url)


def start(site, *keys, flags=()):
    env = {
        "JOBPOOL_STORE": site.url,
        "JOBPOOL_RUN_DIR": str(site.folder / "runs"),
        KEYS_VARIABLE: " ".join(keys),
    }
    if site.url.startswith("postgresql"):
        env["SHOP_DATABASE"] = libpq_url(site.url)
    return site.start("cpu=1", *flags, env=env)


def client(site, *keys):
    """An application of the same kinds, as a web server would import it."""
    jobs = JobPool(site.url, codec=FernetCodec(keys) if keys else None)

    @jobs.job("cpu", kind="pay")
    def pay(card: str, end: str = "") -> list[str]:
        raise NotImplementedError

    return contextlib.closing(jobs), pay


def where_found(site, text):
    """Return the names of the files of site and database that hold a text."""
    paths = [path for path in site.folder.rglob("*") if path.is_file()]
    if site.url.startswith("postgresql"):
        paths += files_of_postgres(site)
    return {path.name for path in paths if text.encode() in _content(path)}


def files_of_postgres(site):
    """Return the files of the schema's tables, and the log that was written since."""
    with contextlib.closing(server().connect()) as admin:
        admin.execute("CHECKPOINT")
        (directory,) = admin.execute("SHOW data_directory").fetchone()
    with contextlib.closing(server().connect(site.url)) as connection:
        found = connection.execute(
            """
            SELECT pg_relation_filepath(c.oid), pg_relation_filepath(c.reltoastrelid)
            FROM pg_class AS c
            WHERE c.relnamespace = %s::regnamespace AND c.relkind IN ('r', 'i', 'm')
            """,
            [query_of(site.url)["schema"]],
        ).fetchall()
    root = Path(directory)
    log = [p for p in (root / "pg_wal").iterdir() if p.is_file()]
    return [
        *(root / path for row in found for path in row if path),
        *(path for path in log if _changed_s(path) >= site.since_s),
    ]


def hooks_of(site, count):
    found = _content(site.folder / "hooks").decode().splitlines()
    return found if len(found) >= count else None  # each is tried again, in a while


def failures_of_hooks(site):
    """Return the first failures of the three hooks' jobs, once each has failed."""
    jobs = site.store.find(Filter(kind=HOOK_DEAD))
    failed = [attempts[0] for job in jobs if (attempts := site.store.attempts(job.id))]
    return failed if len(failed) == 3 else None


def _changed_s(path):
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # others' checkpoints rename what is not needed any more
        return 0.0


def _content(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def test_a_secret_is_in_no_file_however_its_attempts_end(site):
    """Not in the database, its log, the run directory or the supervisor's log."""
    (site.folder / "jobpool.toml").write_text('[kinds.pay]\nkeep_output = "all"\n')
    supervisor = start(site, NEW)
    jobs, pay = client(site, NEW)
    limits = {"hang": {"timeout": "2s"}}
    with jobs:
        made = {
            end: pay.options(max_attempts=2, tenant=end, **limits.get(end, {})).enqueue(
                SECRET, end
            )
            for end in ("returns", "again", "snooze", "dead", "crash", "hang")
        }
        # The search does find what is there: in a job without the codec.
        site.add("pay", {"card": PLAIN}, tenant=PLAIN)
        for end in ("returns", "again", "snooze"):
            assert made[end].result(40) == [SECRET]
            assert made[end].progress == f"at {SECRET}"
        for end in ("dead", "crash", "hang"):
            with pytest.raises(JobUnsuccessful) as told:
                made[end].result(40)
            assert (SECRET in str(told.value)) == (end == "dead")
        hooks = wait_until(lambda: hooks_of(site, 3), 40, "the hooks")
        failed_hooks = wait_until(lambda: failures_of_hooks(site), 40, "their errors")
        assert f"charging {SECRET}" in made["returns"].output()
        tried = {end: job.attempts() for end, job in made.items()}
        assert made["dead"].arguments() == {"card": SECRET, "end": "dead"}
    assert supervisor.stop() == 0
    assert where_found(site, SECRET) <= {"seen", "hooks"}
    assert len(where_found(site, PLAIN) - {"seen", "hooks"}) >= 1
    # The handlers and the hook did see it.
    seen = (site.folder / "seen").read_text().splitlines()
    again = made["again"].id
    assert f"{again} 1 {SECRET} null" in seen
    assert f'{again} 2 {SECRET} {{"card": "{SECRET}"}}' in seen
    assert f"{made['dead'].id} {SECRET} {SECRET}" in hooks
    assert {one.error_class for one in failed_hooks} == {"LookupError"}
    (failed,) = tried["again"]
    assert (failed.error_class, failed.reason) == ("ValueError", "raised ValueError")
    assert f"no credit: {SECRET}" in failed.traceback
    assert f"charging {SECRET}" in failed.output
    # On a busy machine one may hang, and be killed, before it is there.
    assert any("in pay" in (one.stack or "") for one in tried["hang"])
    assert [one.output for one in tried["hang"]] == [None] * 2


def test_a_handler_enqueues_and_compares_keys(site):
    """Through its supervisor, which cannot compare them."""
    start(site, NEW)
    jobs, pay = client(site, NEW)
    with jobs:
        assert pay.enqueue(SECRET, "nested").result(40) == "told apart"
        kept = pay.options(key="nested").enqueue(SECRET)
        assert not kept.created
        assert kept.result(40) == [SECRET]
    assert where_found(site, SECRET) <= {"seen"}


def test_a_codec_is_introduced_while_plain_jobs_wait(sqlite_site):
    """They stay plain, and run; their keys are compared with encoded calls."""
    site = sqlite_site
    before, plain = client(site)
    jobs, pay = client(site, NEW)
    with before, jobs:
        old = plain.options(key="k").enqueue(PLAIN)
        assert pay.options(key="k").enqueue(PLAIN).id == old.id
        new = pay.enqueue(SECRET)
        start(site, NEW)
        assert new.result(40) == [SECRET]
        assert old.result(40) == [PLAIN]
        with pytest.raises(CodecMismatch, match="this application has none"):
            plain._gateway.encoding.job(site.job(new.id))


def test_keys_rotate_without_a_pause(sqlite_site):
    """The new key first: jobs of both run, and what both have returned is read."""
    site = sqlite_site
    supervisor = start(site, OLD)
    first_jobs, first = client(site, OLD)
    later_jobs, later = client(site, NEW, OLD)
    with first_jobs, later_jobs as opened:
        done = first.enqueue(SECRET)
        assert done.result(40) == [SECRET]
        held = first.options(run_in="1h", key="k").enqueue(SECRET)
        early = later.enqueue(SECRET)
        said = supervisor.wait_event("job_unfit", id=early.id)
        assert "'fernet' of this application cannot decode it" in said["reason"]
        assert site.job(early.id).failures == 0
        rotated = start(site, NEW, OLD)
        assert early.result(40) == [SECRET]
        assert supervisor.stop() == 0
        assert opened.get(done.id).result() == [SECRET]
        assert later.options(key="k").enqueue(SECRET).id == held.id
        opened.retry(held.id)
        assert held.wait(40) == "succeeded"
        assert opened.get(held.id).result() == [SECRET]
        with pytest.raises(CodecMismatch):
            held.result()
        assert rotated.stop() == 0


def test_without_the_key_no_attempt_is_spent(sqlite_site):
    """The job waits for a supervisor that has it, and for no other."""
    site = sqlite_site
    (site.folder / "plain.py").write_text(PRELUDE + HANDLERS)
    jobs, pay = client(site, NEW)
    with jobs:
        job = pay.options(max_attempts=1).enqueue(SECRET)
        other = start(site, OLD)
        none = start(site, flags=("--app", "plain.py"))
        for supervisor in (other, none):
            said = supervisor.wait_event("job_unfit", id=job.id)
            assert "cannot be read here" in said["reason"]
        stored = site.in_state(job.id, "pending")
        assert (stored.attempt, stored.failures, stored.error) == (0, 0, None)
        start(site, NEW)
        assert job.result(40) == [SECRET]
        assert site.job(job.id).attempt == 1
    for supervisor in (other, none):
        for secret in (SECRET, OLD, NEW):
            assert secret not in supervisor.said()


def test_hostile_ciphertext_costs_that_job_alone(sqlite_site):
    """It is no crash and no loop: at last it is dead, with a plain reason."""
    site = sqlite_site
    (site.folder / "jobpool.toml").write_text('unknown_for = "1s"\n')
    hostile = [b'"encoded:"', b'"encoded:AAAA"', b'"encoded:\xff"', b"\x80\x04", b"[]"]
    made = site.store.enqueue(
        [
            NewJob(kind="pay", pool="cpu", payload=payload, codec="fernet")
            for payload in hostile
        ]
    )
    jobs, pay = client(site, NEW)
    with jobs:
        fine = pay.enqueue(SECRET)
        start(site, NEW)
        assert fine.result(40) == [SECRET]
        for job in site.finish_all([one.id for one in made]):
            assert (job.state, job.crashes) == ("dead", 0)
            assert "cannot be read here" in job.reason or "do not fit" in job.reason


def test_a_large_result_is_capped_as_it_is_stored(sqlite_site):
    """Encoded, it takes a third more."""
    site = sqlite_site
    (site.folder / "jobpool.toml").write_text('result_max = "100KiB"\n')
    start(site, NEW)
    jobs, pay = client(site, NEW)
    with jobs:
        assert pay.enqueue("x" * 70_000).result(40) == ["x" * 70_000]
        with pytest.raises(JobUnsuccessful) as told:
            pay.enqueue("x" * 90_000).result(40)
        assert "ResultTooLarge" in str(told.value)


def test_the_command_line_shows_and_sends_nothing_in_plain_by_itself(sqlite_site):
    site = sqlite_site
    start(site, NEW)
    jobs, pay = client(site, NEW)
    with jobs:
        job = pay.enqueue(SECRET, "dead")
        assert job.wait(40) == "dead"
    (shown,) = site.cli("show", job.id, "--payload")
    assert shown["codec"] == "fernet"
    assert SECRET not in json.dumps(shown)
    text = command(site, "show", job.id, "--payload").stdout
    assert "encoded:g" not in text
    assert f"jobs.get({job.id}).info()" in text
    refused = command(site, "enqueue", "pay", '["x"]')
    assert refused.returncode == 2
    assert "encodes arguments with the codec 'fernet'" in refused.stderr
    (plain,) = site.cli("enqueue", "pay", f'["{PLAIN}"]', "--plain")
    assert site.result(plain["id"]) == [PLAIN]


def command(site, *words):
    return subprocess.run(
        [sys.executable, "-m", "jobpool", *map(str, words), "--store", site.url],
        cwd=site.folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("site", ["postgres"], indirect=True)
def test_a_completion_in_the_handlers_transaction_is_encoded(site):
    start(site, NEW)
    jobs, pay = client(site, NEW)
    with jobs:
        assert pay.enqueue(SECRET, "complete").result(40) == [SECRET]
    assert where_found(site, SECRET) <= {"seen"}
