"""Jobs by key and tenant from the shell, and a queue's first job."""

import json

import pytest

from jobpool.core.jobs.job import Evidence, JobState, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.opening import open_store
from jobpool.store.records.operating import AuditFilter, Filter
from support.store.cli_store import run, stored
from support.store.storing import begin_run, lease, new_job

APP = """
from jobpool import JobPool
jobs = JobPool()

@jobs.job("io", kind="shop.mail", aliases=["mail"])
def mail(to: str, copies: int = 1):
    pass

@jobs.on_dead
def told(job):
    pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(tmp_path):
    store = stored(tmp_path)
    store.enqueue(
        [
            new_job("shop.mail", key="evt-1", tenant="ada"),
            new_job("shop.mail", key="evt-2", tenant="bob"),
            new_job("shop.pay", key="evt-2"),
            new_job("shop.pay"),
        ]
    )
    yield store
    store.close()


def listed(*flags):
    result = run("list", "--json", *flags)
    assert result.exit_code == 0, result.output
    return [json.loads(line)["id"] for line in result.stdout.splitlines()]


def test_show_finds_a_job_by_its_key(store):
    """If several kinds use the key, --kind selects one."""
    assert run("show", "--key", "evt-1").stdout.startswith("job 1  shop.mail")
    both = run("show", "--key", "evt-2")
    assert both.exit_code == 2
    assert "shop.pay (job 3), shop.mail (job 2); add --kind KIND" in both.stderr
    mail = run("show", "--key", "evt-2", "--kind", "shop.mail", "--json")
    assert json.loads(mail.stdout)["id"] == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "name one job: its ID, or --key KEY"),
        (["1", "--key", "evt-1"], 2, "name one job: its ID, or --key KEY"),
        (["1", "--kind", "shop.mail"], 2, "name one job: its ID, or --key KEY"),
        (["--key", "no"], 1, "there is no job with the key 'no' in"),
        (["--key", "evt-1", "--kind", "k"], 1, "with the key 'evt-1' of kind 'k' in"),
        (["--key", "\x00"], 1, "there is no job with the key"),
        (["--key", "\udcff"], 1, "there is no job with the key"),
    ],
)
def test_show_says_what_it_cannot_find(store, words, code, said):
    """An error and no traceback, whatever the key is."""
    result = run("show", *words)
    assert said in result.stderr
    assert result.exit_code == code


def test_list_finds_jobs_by_key_and_tenant(store):
    """Together with every other part of a filter."""
    assert listed("--key", "evt-2") == [3, 2]
    assert listed("--key", "evt-2", "--kind", "shop.pay") == [3]
    assert listed("--key", "evt-2", "--tenant", "bob") == [2]
    assert listed("--tenant", "ada") == [1]
    assert listed("--key", "nobody") == listed("--tenant", "\udcff") == []


def test_jobs_are_found_and_retried_by_how_their_last_attempt_has_ended(store):
    """Those alone; a word that is no outcome is refused with those that are."""
    begin_run(store)
    ends = {
        1: Evidence(error_class="requests.ConnectionError"),
        2: Evidence(error_class="ValueError"),
    }
    for granted in lease(store, kinds={"cpu": ["shop.mail"]}):
        if (evidence := ends.get(granted.id)) is not None:
            end = Settlement(
                id=granted.id,
                token=granted.token,
                state=JobState.DEAD,
                outcome=Outcome.FAILED,
                evidence=evidence,
            )
            store.settle([end])
    assert listed("--outcome", "failed") == [2, 1]
    assert listed("--error-class", "ConnectionError") == [1]
    assert listed("--outcome", "timed_out") == []
    wrong = run("list", "--outcome", "dead")
    assert wrong.exit_code == 2
    assert "timed_out" in wrong.stderr
    retried = run("retry", "--error-class", "ConnectionError", "--json")
    assert json.loads(retried.stdout)["retried"] == 1
    assert [job.id for job in store.find(Filter(states=(JobState.DEAD,)))] == [2]
    (row,) = store.audits(AuditFilter())
    assert json.loads(row.target)["error_class"] == "ConnectionError"


# -- the first job ---


def jobs_of(folder):
    store = open_store(f"sqlite:///{folder}/jobpool.db", create=False)
    found = store.find(Filter())
    payloads = [store.payload(job.id) for job in found]
    store.close()
    return [(job.kind, job.pool) for job in found], payloads


def test_the_first_job_makes_the_store_where_the_application_is(folder):
    """Its arguments are checked, as those of JobPool().enqueue are."""
    (folder / "jobs.py").write_text(APP)
    result = run("enqueue", "shop.mail", '{"to": "ada"}')
    assert (result.exit_code, result.stdout) == (0, "enqueued 1\n"), result.output
    again = run("enqueue", "mail", '["bob"]')
    assert again.exit_code == 0, again.output
    found, payloads = jobs_of(folder)
    assert found == [("mail", "io"), ("shop.mail", "io")]
    assert payloads == [b'{"to":"bob"}', b'{"to":"ada"}']


@pytest.mark.parametrize(
    ("words", "app", "code", "said"),
    [
        (["shop.mail"], None, 4, "there is no store"),
        (["shop.mial", "{}"], APP, 1, "did you mean 'shop.mail'?"),
        (["jobpool:dead", "{}"], APP, 1, "known to no supervisor"),
        (["shop.mail", '{"too": 1}'], APP, 2, "lack 'to'"),
        (["shop.mail", '{"to": 1}'], APP, 2, "str"),
        (["shop.mail", "{}"], "1 / 0", 3, "ZeroDivisionError"),
        (["shop.mail", "{}"], APP.replace("()", "('x.db')", 1), 2, "names the store"),
    ],
)
def test_a_first_job_that_is_refused_is_not_stored(folder, words, app, code, said):
    """The message says why."""
    if app is not None:
        (folder / "jobs.py").write_text(app)
    result = run("enqueue", *words)
    assert said in result.stderr
    assert result.exit_code == code
    assert not list(folder.glob("*.db")) or jobs_of(folder)[0] == []


def test_a_job_that_would_expire_as_it_begins_is_refused(store):
    """It would never run. A job with slightly more time is accepted."""
    kind = ("shop.thumbnail", '["a"]')
    late = run("enqueue", *kind, "--run-in", "1m", "--expires-in", "60s")
    assert late.exit_code == 2
    assert "canceled before it may start" in late.stderr
    timely = run("enqueue", *kind, "--run-in", "1m", "--expires-in", "61s")
    assert timely.exit_code == 0, timely.output


def test_a_hook_kind_cannot_be_enqueued_from_the_shell(folder):
    """Hook jobs are created by jobpool alone."""
    (folder / "jobs.py").write_text(APP)
    result = run("enqueue", "jobpool:on_dead")
    assert result.exit_code != 0
    assert not (folder / "jobpool.db").exists()
