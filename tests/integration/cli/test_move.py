"""`jobpool migrate` and `jobpool move`, as a person calls them."""

import pytest

from jobpool.cli.exits import Exit
from jobpool.store.opening import open_store
from support.postgres.server import server
from support.store.cli_store import enqueue, rows, run, stored, url_of


@pytest.fixture
def target_url():
    url = server().fresh_url()
    yield url
    server().drop(url)


@pytest.fixture
def source_url(tmp_path):
    """A queue with three jobs and no open run."""
    store = stored(tmp_path)
    enqueue(store, 3)
    store.end_run("run-1")
    store.close()
    return url_of(tmp_path)


def test_migrate_makes_either_store(tmp_path, target_url):
    """And says its version; a second time it finds nothing to do."""
    for url in (url_of(tmp_path), target_url):
        for _ in range(2):
            (answer,) = rows(run("migrate", "--store", url, "--json"))
            assert answer["schema_version"] > 0
        open_store(url, create=False).close()


def test_move_moves_once(source_url, target_url):
    """It prints one line of JSON; the second call says that it is done."""
    given = ("move", "--from", source_url, "--to", target_url, "--yes")
    (answer,) = rows(run(*given, "--json"))
    assert answer["jobs"] == 3
    assert answer["states"] == {"runnable": 3}
    assert "is already done" in run(*given).stdout
    refused = run("pause", "--store", source_url, "--pool", "cpu")
    assert refused.exit_code
    assert f"was moved to {answer['target']}" in refused.stderr


def test_move_asks_first(source_url, target_url):
    """Answering no changes nothing."""
    result = run("move", "--from", source_url, "--to", target_url, stdin="n\n")
    assert result.exit_code
    assert run("pause", "--store", source_url, "--pool", "cpu").exit_code == 0


def test_move_needs_a_target(source_url):
    """The error says how to name one."""
    result = run("move", "--from", source_url)
    assert result.exit_code == Exit.USAGE
    assert "--to postgresql://" in result.stderr


def test_abandon_opens_the_source_again(source_url, target_url):
    """After a refusal, for example because both queues have jobs with the same ids."""
    target = open_store(target_url)
    enqueue(target, 1)
    target.close()
    refused = run("move", "--from", source_url, "--to", target_url, "--yes")
    assert "have ids or keys" in refused.stderr
    assert run("move", "--from", source_url, "--abandon").exit_code == 0
    assert run("pause", "--store", source_url, "--pool", "cpu").exit_code == 0
