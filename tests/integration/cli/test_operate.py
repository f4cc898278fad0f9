"""Commands that change something: what they change, and what they refuse."""

import json
import re
import time

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.store.opening import open_store
from support.store.cli_store import (
    KIND,
    dead,
    enqueue,
    quarantined,
    rows,
    run,
    stored,
    succeeded,
    url_of,
)
from support.store.flows import run_to_end, step, store_flow


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store(tmp_path):
    store = stored(tmp_path)
    yield store
    store.close()


def states(store, *ids):
    return [store.get(job_id).state.value for job_id in ids]


# -- acting on many ----------------------------------------------------------------


def test_retry_brings_the_dead_back_and_release_the_quarantined(store):
    """Each command revives what it is meant for, counters reset, history kept."""
    d, q = dead(store), quarantined(store)
    assert run("retry", d).stdout == "1 of 1 job retried\n"
    assert run("release", q).stdout == "1 of 1 job released\n"
    assert states(store, d, q) == ["runnable", "runnable"]
    assert store.get(q).crashes == 0
    assert len(store.attempts(q)) == 1


def test_release_may_raise_the_memory_limit(store):
    """By id or by a filter; what would not help is refused, and says why."""
    one, other = quarantined(store), quarantined(store)
    low = run("release", one, "--memory", "1MiB")
    assert (low.exit_code, low.stdout) == (1, "")
    assert re.search(r"job \d+: its memory limit is \S+; expected more", low.stderr)
    assert run("release", one, "--memory", "much").exit_code == 2
    assert states(store, one) == ["quarantined"]
    assert run("release", one, "--memory", "900GiB").stdout == "1 of 1 job released\n"
    done = run("release", "--kind", KIND.kind, "--memory", "1MiB", "--json")
    assert "1 of these jobs: its memory limit is" in rows(done)[0]["refused"][0]
    assert states(store, one, other) == ["runnable", "quarantined"]
    assert "memory 900GiB" in run("audit").stdout


def test_a_job_can_be_named_by_its_ref(store):
    """Wherever an ID is taken; one that this store did not give changes nothing."""
    job_id = dead(store)
    ref = store.get(job_id).ref
    assert rows(run("show", ref, "--json"))[0]["id"] == job_id
    forged = run("retry", job_id, f"{ref}a")
    assert forged.exit_code != 0
    assert f"no job has the ref {ref}a" in forged.stderr
    assert states(store, job_id) == ["dead"]
    assert run("retry", ref).stdout == "1 of 1 job retried\n"


def test_a_refused_revival_names_the_right_command(store):
    """Retry leaves poison pills alone and says which command releases them."""
    q = quarantined(store)
    result = run("retry", q)
    assert result.exit_code == 1
    assert "use jobpool release" in result.stderr
    assert states(store, q) == ["quarantined"]


def test_ids_that_do_not_exist_fail_but_the_others_are_done(store):
    """Exit code 1, and each id that failed is named."""
    (job_id,) = enqueue(store)
    result = run("cancel", job_id, 98, "--json")
    assert result.exit_code == 1
    assert rows(result)[0]["canceled"] == 1
    assert "there is no job 98" in result.stderr
    assert states(store, job_id) == ["canceled"]


@pytest.mark.parametrize("command", ["cancel", "retry", "release"])
def test_neither_or_both_of_ids_and_filters_changes_nothing(store, command):
    """Without IDs and filters, or with both, it is unclear what is meant."""
    job_id = dead(store)
    for given in ([], [job_id, "--kind", KIND.kind]):
        result = run(command, *given)
        assert result.exit_code == 2
        assert "either their IDs, or filters" in result.stderr
    assert states(store, job_id) == ["dead"]


def test_filters_select_the_usual_state_by_default(store):
    """Retry --kind selects dead jobs; jobs that were canceled on purpose stay so."""
    d = dead(store)
    (c,) = enqueue(store)
    store.cancel([c])
    other = enqueue(store, kind="other", pool="io")[0]
    assert rows(run("retry", "--kind", KIND.kind, "--json")) == [
        {"retried": 1, "matched": 1, "dry_run": False, "refused": []}
    ]
    assert states(store, d, c, other) == ["runnable", "canceled", "runnable"]
    assert run("retry", "--state", "canceled").stdout == "1 of 1 job retried\n"
    assert run("cancel", "--pool", "io").stdout == "1 of 1 job canceled\n"
    assert states(store, d, c, other) == ["runnable", "runnable", "canceled"]


def test_what_stays_as_it_is_is_explained(store):
    """Such as a job of a step that has ended, which its flow alone begins anew."""
    job = dead(store)
    store_flow(store, step(0))
    run_to_end(store, deadly={0})
    done = run("retry", "--kind", KIND.kind)
    assert (done.exit_code, done.stdout) == (1, "1 of 2 jobs retried\n")
    assert (
        "1 job not retried: of a step of a flow that has ended (jobpool" in done.stderr
    )
    assert states(store, job) == ["runnable"]


def test_dry_run_counts_and_changes_nothing(store):
    """It reports what would happen."""
    ids = enqueue(store, 7)
    assert run("cancel", "--kind", KIND.kind, "--dry-run").stdout == (
        "7 jobs would be canceled  1, 2, 3, 4, 5, …\n"
    )
    assert set(states(store, *ids)) == {"runnable"}


def test_a_great_many_are_done_in_batches(store):
    """More jobs than a batch holds are all done, none twice."""
    enqueue(store, 1203)
    assert run("cancel", "--kind", KIND.kind).stdout == "1203 of 1203 jobs canceled\n"


def test_a_rate_is_kept(store):
    """--rate 100/s takes at least as long as it must; the oldest go first."""
    enqueue(store, 60)
    begun = time.monotonic()
    assert run("cancel", "--kind", KIND.kind, "--rate", "100/s").exit_code == 0
    assert time.monotonic() - begun >= 0.49
    assert run("cancel", "--kind", KIND.kind, "--rate", "0/s").exit_code == 2


# -- pause and resume --------------------------------------------------------------


def test_pause_and_resume_pools_and_kinds(store):
    """What is paused is not leased; resuming lifts exactly that."""
    enqueue(store)
    enqueue(store, kind="other", delay_ms=60_000)
    assert run("pause", "--pool", "cpu", "--kind", "other").exit_code == 0
    assert sorted(store.paused()) == [("kind", "other"), ("pool", "cpu")]
    assert store.lease("run-1", {"cpu": 1}, {"cpu": [KIND.kind]}).leases == ()
    assert "(no change)" in run("pause", "--pool", "cpu").stdout
    assert rows(run("resume", "--pool", "cpu", "--json")) == [
        {"pool": "cpu", "resumed": True, "changed": True}
    ]
    assert len(store.lease("run-1", {"cpu": 1}, {"cpu": [KIND.kind]}).leases) == 1
    assert run("pause").exit_code == 2
    assert run("pause", "--pool", "NO").exit_code == 2


@pytest.mark.parametrize("command", ["pause", "resume"])
@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        (("--kind", "shop.thumbnial"), "kind 'shop.thumbnial'.* 'shop.thumbnail'"),
        (("--pool", "cpuu"), "pool 'cpuu'.* 'cpu'"),
        (("--pool", "cpu", "--pool", "iop"), "pool 'iop'.* 'io'"),
        (("--kind", "none.at_all"), "expected one of shop.pay, shop.thumbnail"),
    ],
)
def test_a_misspelt_name_to_pause_is_refused(store, tmp_path, command, slip, meant):
    """Nothing is paused or reported as paused; the nearest name is suggested."""
    (tmp_path / "jobpool.toml").write_text('[kinds."shop.pay"]\ntimeout = "1s"\n')
    result = run(command, *slip)
    assert result.exit_code == 2
    assert re.search(meant, result.stderr)
    assert "Nothing was changed" in result.stderr
    assert store.paused() == []


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        (("--kind", "shop.qeued"), "; did you mean 'shop.queued'? Nothing was changed"),
        (("--pool", "quued"), "; did you mean 'queued'? Nothing was changed"),
        (("--pool", "x"), "; expected one of cpu, io, queued. Nothing was changed"),
    ],
)
def test_names_that_only_jobs_use_can_be_paused(store, slip, words):
    """A name counts as known if only waiting jobs use it."""
    enqueue(store, kind="shop.queued", pool="queued")
    assert words in run("pause", *slip).stderr


def test_the_error_does_not_claim_that_there_are_no_kinds(tmp_path):
    """The error says only that this kind is unknown: other jobs may have kinds."""
    open_store(url_of(tmp_path)).close()
    result = run("pause", "--kind", "shop.thumbnial")
    assert result.stderr.startswith(
        "Error: no supervisor, job or configuration has kind 'shop.thumbnial'. Nothing"
    )


def test_a_refused_request_reports_no_count(store):
    """Ids that were not found are not counted. Of a mixture, both are reported."""
    gone, done = dead(store), succeeded(store)
    alone = run("retry", done)
    assert (alone.exit_code, alone.stdout) == (1, "")
    assert f"job {done} is succeeded" in alone.stderr
    assert run("retry", gone, done).stdout == "1 of 1 job retried\n"


@pytest.mark.parametrize("command", ["list", "retry --dry-run", "cancel", "release"])
def test_a_filter_by_an_unknown_name_says_so(store, command):
    """A filter that matches nothing because of a misspelt name says so."""
    dead(store)
    result = run(*command.split(), "--kind", "shop.thumbnial", "--pool", "cpu")
    assert result.exit_code == 0
    assert "note: no supervisor, job or configuration has kind" in result.stderr
    assert "did you mean 'shop.thumbnail'?" in result.stderr
    assert not run(*command.split(), "--kind", KIND.kind, "--since", "0s").stderr


@pytest.mark.parametrize(
    "known",
    [
        ("--kind", KIND.kind),
        ("--pool", KIND.pool),
        ("--pool", "io"),
        ("--kind", "shop.queued"),
        ("--pool", "queued"),
        ("--kind", "shop.configured"),
        ("--pool", "configured"),
        ("--kind", "to.come", "--force"),
        ("--pool", "to-come", "--force"),
    ],
)
def test_any_known_name_can_be_paused(store, tmp_path, known):
    """Names from a supervisor, a job or the configuration.

    Any other name with --force.
    """
    enqueue(store, kind="shop.queued", pool="queued", delay_ms=60_000)
    (tmp_path / "jobpool.toml").write_text(
        '[kinds."shop.configured"]\ntimeout = "1s"\n[pools.configured]\nsize = 1\n'
        'timeout = "1m"\n'
    )
    assert run("pause", *known).exit_code == 0
    (what,) = store.paused()
    assert what == (known[0].removeprefix("--"), known[1])
    assert run("resume", *known[:2]).exit_code == 0, "what is paused is somebody's"
    assert store.paused() == []


# -- prune -------------------------------------------------------------------------


def test_prune_deletes_by_age_and_never_unfinished_or_quarantined(store):
    """Quarantined jobs stay unless named; --dry-run counts the same jobs."""
    d, s, q = dead(store), succeeded(store), quarantined(store)
    (waiting,) = enqueue(store)
    assert run("prune", "--dry-run").stdout == "0 jobs would be pruned\n"
    assert run("prune", "--older-than", "1h").stdout == "0 jobs pruned\n"
    time.sleep(0.002)  # so that all are older than 0 ms by the store's clock
    dry = run("prune", "--older-than", "0", "--dry-run", "--json")
    assert rows(dry) == [{"pruned": 0, "matched": 2}]
    assert run("prune", "--older-than", "0").stdout == "2 jobs pruned\n"
    assert store.get(d) is store.get(s) is None
    assert states(store, q, waiting) == ["quarantined", "runnable"]
    named = run("prune", "--older-than", "0", "--state", "quarantined")
    assert named.stdout == "1 job pruned\n"
    assert run("prune", "--older-than", "-1d").exit_code == 2


def test_prune_keeps_the_newest_of_each_state(store, tmp_path):
    """By the flag or by the configuration, which the flags replace."""
    ids = [dead(store) for _ in range(4)]
    kept = succeeded(store)
    (tmp_path / "keep.toml").write_text("[retention]\ndead = { count = 3 }\n")
    by_file = ("prune", "--config", str(tmp_path / "keep.toml"))
    assert run(*by_file, "--older-than", "1h").stdout == "0 jobs pruned\n"
    assert run(*by_file, "--dry-run").stdout == "1 job would be pruned\n"
    assert run(*by_file).stdout == "1 job pruned\n"
    by_flag = ("prune", "--keep", "1", "--state", "dead")
    assert run(*by_flag, "--dry-run").stdout == "2 jobs would be pruned\n"
    assert run(*by_flag).stdout == "2 jobs pruned\n"
    assert [job_id for job_id in (*ids, kept) if store.get(job_id)] == [ids[3], kept]
    assert run("prune", "--keep", "0").exit_code == 2


# -- enqueue -----------------------------------------------------------------------


def test_each_args_json_is_one_job(store):
    """Objects by name, arrays by position; nothing means no arguments."""
    result = run("enqueue", KIND.kind, '{"path": "a"}', '["b", 5]')
    assert result.stdout == "enqueued 1 2\n"
    assert [json.loads(store.payload(n)) for n in (1, 2)] == [
        {"path": "a"},
        {"path": "b", "width": 5},
    ]
    assert store.get(1).pool == "cpu"


def test_stdin_is_one_job_a_line(store):
    """A single dash streams jobs; empty lines are nothing."""
    lines = "".join(f'["f{n}"]\n' for n in range(2500)) + "\n"
    result = run("enqueue", KIND.kind, "-", "--json", stdin=lines)
    assert len(rows(result)) == 2500
    assert json.loads(store.payload(2500)) == {"path": "f2499"}


def test_a_bad_line_says_how_many_were_stored_before(store):
    """Batches before the bad line are stored; the bad line's batch is not."""
    lines = '["f"]\n' * 1500 + '["f", "hunter2"]\n'
    result = run("enqueue", KIND.kind, "-", stdin=lines)
    assert result.exit_code == 2
    assert "line 1501 of stdin: argument 'width'" in result.stderr
    assert "(1000 jobs were enqueued)" in result.stderr
    assert "hunter2" not in result.output
    assert store.get(1000) is not None
    assert store.get(1001) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}"], "lack 'path'"),
        ([], "lack 'path'"),
        (['{"path": 5}'], "argument 'path': expected string"),
        (["nonsense"], "is not JSON"),
        (['["a"]', "--run-in", "-5m"], "'-5m' is not a duration"),
        (['["a"]', "--run-in", "nan"], "is not a duration"),
        (['["a"]', "--run-at", "12:00"], "is not a moment"),
        (['["a"]', "--run-at", "10000-01-01T00:00:00Z"], "is not a moment"),
        (['["a"]', "--run-at", "2030-01-01T00:00Z", "--run-in", "1m"], "exclude"),
        (['["a"]', "--priority", "40000"], "priority"),
        (['["a"]', "--key", ""], "--key must be 1 to 255"),
        (['["a"]', "--pool", "No Pool"], "is not a valid name"),
        (['["' + "x" * 2**20 + '"]'], "at most 1MiB"),
    ],
)
def test_bad_jobs_are_refused_and_nothing_is_stored(store, arguments, message):
    """Exit code 2, the argument named, not a single row written."""
    result = run("enqueue", KIND.kind, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert store.get(1) is None


def test_an_unknown_kind_needs_force_and_a_pool(store):
    """A misspelt kind gets a suggestion; --pool and --force insist."""
    result = run("enqueue", "shop.thumbnial", '{"path": "a"}')
    assert result.exit_code == 1
    assert "did you mean 'shop.thumbnail'?" in result.stderr
    assert store.get(1) is None
    forced = run("enqueue", "shop.new", '{"a": 1}', "--pool", "io", "--force")
    assert forced.stdout == "enqueued 1\n"
    assert store.get(1).pool == "io"


def test_options_reach_the_job(store):
    """Priority, key, tenant, time and expiry are stored as said."""
    run(
        *(
            "enqueue",
            KIND.kind,
            '["a"]',
            "--priority",
            7,
            "--key",
            "k",
            "--tenant",
            "t",
        ),
        *("--run-at", "2100-01-01T00:00:00Z", "--unique", "u", "--expires-in", "1h"),
    )
    job = store.get(1)
    assert (job.priority, job.key, job.tenant, job.unique) == (7, "k", "t", "u")
    assert job.run_at_ms == 4_102_444_800_000
    assert job.state is JobState.PENDING
    assert job.expires_at_ms is not None


def test_a_job_from_the_shell_is_in_the_trace_of_its_environment(store, monkeypatch):
    """As other programs are that a traced script starts."""
    monkeypatch.setenv("TRACEPARENT", trace := f"00-{'a' * 32}-{'b' * 16}-01")
    assert run("enqueue", KIND.kind, '["a"]', '["b"]').exit_code == 0
    wanted = {KIND.pool: [KIND.kind]}
    batch = store.lease("run-1", {KIND.pool: 9}, wanted)
    assert {one.trace for one in batch.leases if one.id in {1, 2}} == {trace}


def test_a_key_that_is_used_returns_its_job_or_a_conflict(store):
    """The same arguments find the same job; others conflict and store nothing."""
    run("enqueue", KIND.kind, '["a"]', "--key", "k")
    again = run("enqueue", KIND.kind, '["a"]', "--key", "k")
    assert again.stdout == "job 1 exists already  runnable\n"
    conflict = run("enqueue", KIND.kind, '["b"]', "--key", "k")
    assert conflict.exit_code == 1
    assert conflict.stderr.startswith("Error: ")
    assert store.get(2) is None
