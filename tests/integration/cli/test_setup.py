"""`jobpool init` and completion: what one does once, in a new directory."""

import contextlib
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from jobpool.cli.launch.init import FILES
from jobpool.cli.root import cli
from jobpool.core.rules.quotas.definition import Tenant
from jobpool.store.opening import open_store
from support.store.cli_store import KIND, enqueue, stored, url_of


def run(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "jobpool", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def test_what_init_writes_runs_as_it_is(tmp_path):
    """Its handlers load under its configuration, and their jobs succeed."""
    said = run("init", str(tmp_path / "shop"))
    assert said.returncode == 0, said.stderr
    here = tmp_path / "shop"
    assert {path.name for path in here.iterdir()} == set(FILES)
    enqueue = "from jobs import greet, primes; primes.enqueue(1000); greet.enqueue('a')"
    subprocess.run([sys.executable, "-c", enqueue], cwd=here, check=True)
    burst = run("run", "--burst", cwd=here)
    assert burst.returncode == 0, burst.stderr
    with contextlib.closing(open_store(f"sqlite:///{here}/jobpool.db")) as store:
        assert [store.get(job).result for job in (1, 2)] == [b"168", b'"hello, a"']


def test_init_leaves_what_exists_as_it_is(tmp_path):
    (tmp_path / "jobs.py").write_text("mine")
    said = CliRunner().invoke(cli, ["init", str(tmp_path)])
    assert said.exit_code == 0
    assert "left as it is" in said.output
    assert (tmp_path / "jobs.py").read_text() == "mine"
    before = (tmp_path / "jobpool.toml").read_text()
    again = CliRunner().invoke(cli, ["init", str(tmp_path)])
    assert again.output.count("left as it is") == 2
    assert "Next" not in again.output
    assert (tmp_path / "jobpool.toml").read_text() == before


def test_init_says_where_it_cannot_write(tmp_path):
    (tmp_path / "file").write_text("")
    said = CliRunner().invoke(cli, ["init", str(tmp_path / "file" / "below")])
    assert said.exit_code == 2
    assert "cannot be written" in said.output


def completed(line, **env):
    """Return what bash would offer for the last word of a line."""
    words = line.split(" ")
    said = CliRunner().invoke(
        cli,
        prog_name="jobpool",
        complete_var="_JOBPOOL_COMPLETE",
        env={
            "_JOBPOOL_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            **env,
        },
    )
    return [found.partition(",")[2] for found in said.output.split()]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A store with a supervisor's kind, pools and a tenant's jobs."""
    folder = tmp_path_factory.mktemp("store")
    with contextlib.closing(stored(folder)) as store:
        enqueue(store, 2)
        store.set_tenant(Tenant(name="ann", weight=2.0))
    return url_of(folder)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("jobpool compl", ["completion"]),
        ("jobpool completion z", ["zsh"]),
        ("jobpool show ", ["2", "1"]),
        ("jobpool cancel 1 2", ["2"]),
        ("jobpool list --pool c", ["cpu"]),
        (f"jobpool list --kind {KIND.kind[:2]}", [KIND.kind]),
        (f"jobpool enqueue {KIND.kind[:2]}", [KIND.kind]),
        ("jobpool logs --kind nothing-like-it", []),
        ("jobpool list --tenant a", ["ann"]),
    ],
)
def test_a_shell_completes_commands_and_what_the_store_knows(url, line, offered):
    assert completed(line, JOBPOOL_STORE=url) == offered


@pytest.mark.parametrize("url", ["sqlite:////no/such/jobpool.db", "nonsense"])
def test_without_a_store_a_shell_completes_nothing_and_makes_nothing(url):
    assert completed("jobpool list --pool ", JOBPOOL_STORE=url) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_asks_with_the_variable_that_main_knows(shell):
    said = CliRunner().invoke(cli, ["completion", shell], prog_name="jobpool")
    assert said.exit_code == 0
    assert f"_JOBPOOL_COMPLETE={shell}_complete" in said.output


def test_completing_starts_no_supervisor_and_no_zygote():
    """`jobpool run` that is being typed is no start."""
    env = {**os.environ, "_JOBPOOL_COMPLETE": "bash_complete"}
    env |= {"COMP_WORDS": "jobpool run --poo", "COMP_CWORD": "2"}
    said = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "jobpool", "run"],
        capture_output=True,
        text=True,
        env=env,
        check=True,
        timeout=60,
    )
    assert said.stdout == "plain,--pools\n"
    assert "jobpool.sandbox.zygote.early" not in said.stderr
