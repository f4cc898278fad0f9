"""`jobpool check`: the application is really loaded, elsewhere, and nothing starts."""

import os
import re
import signal

import pytest

from jobpool.cli.diagnose import check
from support.store.cli_store import rows, run, stored

APP = """
from jobpool import JobPool
jobs = JobPool({store})

@jobs.job("cpu", kind="shop.thumbnail", timeout="30s")
def thumbnail(path: str) -> None:
    pass
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.py").write_text(APP.format(store=""))
    return tmp_path


def test_check_prints_what_is_set_with_its_origin(folder):
    """Settings and each kind's limits, where they come from; no store is made.

    Of what has its plain default, a fresh start's hundred settings, the number.
    """
    (folder / "jobpool.toml").write_text("[pools.cpu]\nmemory = '300MiB'\n")
    result = run("check", "--timeout", "io=9s")
    assert result.exit_code == 0, result.output
    for words in (
        r"pools.cpu.memory 300MiB jobpool.toml [pools.cpu] memory",
        r"pools.io.timeout 9s flag --timeout",
        r"shop.thumbnail cpu timeout 30s decorator",
        r"shop.thumbnail cpu memory 300MiB jobpool.toml [pools.cpu] memory",
        r"app jobs.py default",
        r"pools.io.size 16 default",
    ):
        assert words in [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "default (80 % of the memory here)" in result.stdout
    assert "retention" not in result.stdout
    (left,) = re.findall(r"not shown: (\d+) settings at their", result.stdout)
    assert "all is well" in result.stdout
    assert not (folder / "jobpool.db").exists()
    every = run("check", "--timeout", "io=9s", "--all").stdout
    assert re.search(r"\nretention.quarantined +forever +default\n", every)
    shown = result.stdout.partition("\nnot shown")[0].count("\n")
    assert every.partition("\n\nKINDS")[0].count("\n") == shown + int(left)


def test_check_notes_what_a_start_would_miss(folder, monkeypatch):
    """The packages of what is configured; and it shows no key."""
    text = '[sentry]\ndsn = "https://5ecre7@sentry.example/42"\n'
    (folder / "jobpool.toml").write_text(text)
    said = run("check").stdout
    assert "note: [sentry]" not in said
    assert "https://…@sentry.example/42" in said
    assert "5ecre7" not in said + run("check", "--json").stdout
    monkeypatch.setattr(check, "find_spec", lambda _name: None)
    result = run("check")
    assert result.exit_code == 0, result.output
    assert "[sentry] dsn: here a start would be refused" in result.stdout
    assert "pip install 'jobpool[sentry]'" in result.stdout


@pytest.mark.parametrize(
    ("alerts", "note"),
    [
        ("watch = true", "the queue is watched, but nobody is told"),
        ('webhook = "https://x.example/T0"', "its webhooks are not signed"),
        (
            'webhook = "https://x.example/T0"\nsecret_file = "/no/such"',
            "secret_file /no/such: No such file or directory",
        ),
    ],
)
def test_check_notes_alerts_that_nobody_would_hear_or_believe(folder, alerts, note):
    (folder / "jobpool.toml").write_text(f"[alerts]\n{alerts}\n")
    result = run("check")
    assert result.exit_code == 0, result.output
    assert note in result.stdout
    assert "/T0" not in run("check", "--json").stdout


def test_check_speaks_json(folder):
    """One object a setting and a kind's limit, values as numbers."""
    found = rows(run("check", "--json"))
    settings = {row["setting"]: row for row in found if "setting" in row}
    assert settings["pools.io.size"]["shown"] == "16"
    assert settings["retention.dead"]["value"] == 180 * 86400
    limits = {row["limit"]: row for row in found if "limit" in row}
    assert limits["timeout"]["value"] == 30


QUOTAS = """
from jobpool import JobPool
jobs = JobPool()
stripe = jobs.quota('stripe', rate='10/s', burst=20, concurrency=8)
gpu = jobs.quota('gpu', concurrency=1, scope='host')
mail = jobs.quota('mail', concurrency=3)

@jobs.job('io', kind='pay', quotas=[stripe.cost(2), gpu], concurrency=4)
def pay(cents: int) -> None: ...
"""


def test_check_shows_quotas_as_they_are_configured(folder):
    """In the settings with their origin, merged among the quotas, and what is odd."""
    (folder / "jobs.py").write_text(QUOTAS)
    (folder / "jobpool.toml").write_text(
        "[quotas.stripe]\nrate = '5/s'\nburst = 2\n[quotas.mial]\nconcurrency = 2\n"
        "[tenants.'*']\nconcurrency = 7\n[kinds.pay]\nconcurrency = 6\n"
    )
    result = run("check")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for words in (
        "quotas.stripe.rate 5/s jobpool.toml [quotas.stripe] rate",
        'tenants."*".concurrency 7 jobpool.toml [tenants."*"] concurrency',
        "pay io concurrency 6 jobpool.toml [kinds.pay] concurrency",
        "stripe 8 at once, 5/s with burst 2 - pay (cost 2) code, configuration",
        "kind:pay 6 at once - pay code",
        "* 7 at once",
    ):
        assert words in lines
    assert "note: [quotas.mial]: the application declares no quota" in result.stdout


def test_check_refuses_a_cost_that_could_never_be_had(folder):
    """The configuration has less than the decorator's cost."""
    (folder / "jobs.py").write_text(QUOTAS)
    (folder / "jobpool.toml").write_text("[quotas.stripe]\nconcurrency = 1")
    result = run("check")
    assert result.exit_code == 2
    assert result.stderr.count("a cost of 2 of quota 'stripe' could never be had") == 1


def test_check_shows_quotas_with_who_needs_them(folder):
    """Also one that only `permit()` asks for, and a kind's own cap."""
    (folder / "jobs.py").write_text(QUOTAS)
    lines = [" ".join(line.split()) for line in run("check").stdout.splitlines()]
    for words in (
        "stripe 8 at once, 10/s with burst 20 - pay (cost 2) code",
        "gpu 1 at once host pay code",
        "mail 3 at once - permit() only code",
        "kind:pay 4 at once - pay code",
    ):
        assert words in lines
    found = {
        row["quota"]: row for row in rows(run("check", "--json")) if "quota" in row
    }
    assert found["stripe"]["costs"] == {"pay": 2}
    assert (found["stripe"]["rate"], found["stripe"]["burst"]) == ("10/s", 20)
    assert found["gpu"]["scope"] == "host"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            '[kinds."shop.thumbnial"]\ntimeout = 1',
            "another application's first); did you mean 'shop.thumbnail'?",
        ),
        ("[pools.cpu]\nread = ['/srv']", "read = [paths] is for sandbox = strict"),
        ("[pools.io]\nsize = 1", "the application has no kind in pool io"),
        ("[pools.cpu]\nmemory = '1MiB'", "a memory limit of 1MiB is below"),
    ],
)
def test_check_finds_what_would_stop_a_start(folder, file, message):
    """Exit code 2 and the same words as the start would use."""
    (folder / "jobpool.toml").write_text(file)
    result = run("check")
    assert result.exit_code == 2
    assert message in result.stderr
    assert "all is well" not in result.stdout


def test_an_application_without_kinds_is_not_said_to_be_well(folder):
    """Nothing is wrong with what it says, and nothing would ever run."""
    (folder / "jobs.py").write_text("import jobpool\njobs = jobpool.JobPool()\n")
    result = run("check")
    assert result.exit_code == 0, result.output
    assert "nothing can run: no kind is registered" in result.stdout
    assert "all is well" not in result.stdout


def test_check_refuses_an_application_with_another_store(folder):
    """Its jobs would go to a store that this supervisor never reads."""
    (folder / "jobs.py").write_text(APP.format(store="'sqlite:///other.db'"))
    result = run("check")
    assert result.exit_code == 2
    assert "the application names the store sqlite:///" in result.stderr
    assert "other.db, but this supervisor uses" in result.stderr
    assert run("check", "--store", "other.db").exit_code == 0


def test_check_shows_why_an_application_does_not_load(folder):
    """Its traceback, the error, exit code 3."""
    (folder / "jobs.py").write_text("raise RuntimeError('boom')")
    result = run("check")
    assert result.exit_code == 3
    assert "RuntimeError: boom" in result.stderr
    assert "Traceback" in result.stderr


def test_check_sees_the_end_of_a_process_whose_fork_lives_on(folder):
    """An import that forks, and ends, is told at once and not after app_timeout."""
    (folder / "jobs.py").write_text(
        "import os, time\n"
        "copy = os.fork()\n"
        "if copy:\n"
        "    open('copy', 'w').write(str(copy))\n"
        "    os._exit(5)\n"
        "time.sleep(600)\n"
    )
    try:
        result = run("check")
    finally:
        os.kill(int((folder / "copy").read_text()), signal.SIGKILL)
    assert result.exit_code == 3
    assert "ended by itself" in result.stderr


def test_check_refuses_a_store_that_cannot_be_used(folder):
    """A file that is no database is found before the first start; exit code 4."""
    (folder / "jobpool.db").write_bytes(b"certainly not a database" * 100)
    assert run("check").exit_code == 4
    (folder / "jobpool.db").unlink()
    stored(folder).close()
    assert run("check").exit_code == 0


def test_check_notes_variables_that_mean_nothing(folder, monkeypatch):
    """A misspelt variable name is pointed out, and is no error."""
    monkeypatch.setenv("JOBPOOL_POOL", "cpu=4")
    result = run("check")
    assert result.exit_code == 0
    assert "JOBPOOL_POOL is set but has no effect; did you mean JOBPOOL_POOLS?" in (
        " ".join(result.stdout.split())
    )
    assert os.environ["JOBPOOL_POOL"] == "cpu=4"
