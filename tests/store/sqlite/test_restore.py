"""A real backup of a file, put back after a million leases, and files under a store."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobpool.cli.root import cli
from jobpool.core.rules.repairs.restoring import TOKENS_MAX
from jobpool.errors import OutcomeUnknown, StoreUnavailable, StoreWentBack
from jobpool.store.contract.watermark import Watermark
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from jobpool.store.sqlite.connection import commit
from jobpool.store.sqlite.connection.location import identity_of
from support.store.storing import begin_run, lease_one, new_job, succeeded

LEASES, BATCH = 10**6, 10**4


@pytest.fixture
def path(tmp_path):
    # Not jobs.db: some tests leave a connection open for good, which others look for.
    return tmp_path / "queue.db"


@pytest.fixture
def store(path):
    with closing(open_store(f"sqlite:///{path}")) as store:
        begin_run(store)
        yield store


def back_up(path):
    copy = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(copy)) as to:
        live.backup(to)
    return copy


def without_log(path):
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def restore(path, copy):
    without_log(path)
    path.unlink()
    shutil.copyfile(copy, path)
    done = CliRunner().invoke(cli, ["restored", "--store", f"sqlite:///{path}"])
    assert done.exit_code == 0, done.output


def test_tokens_of_a_restored_store_are_above_a_million_that_it_lost(path, store):
    """And of a second restore of the same backup above those of the first."""
    store.enqueue([new_job()] * 3)
    copy = back_up(path)
    for _ in range(LEASES // BATCH):
        with store._database.writing() as session:
            session.value("take_tokens", leases=BATCH, most=TOKENS_MAX)
    tokens = [lease_one(store).token]
    assert tokens[0] >> 20 > LEASES
    ids = [store.enqueue([new_job()] * BATCH)[-1].id]
    store.close()
    for run_id in ("run-2", "run-3"):
        restore(path, copy)
        with closing(open_store(f"sqlite:///{path}")) as again:
            again.resume(whole_store=True)
            begin_run(again, run_id)
            tokens.append(lease_one(again, run_id).token)
            ids.append(again.enqueue([new_job()])[0].id)
    assert tokens == sorted(set(tokens))
    assert ids == sorted(set(ids))


def test_a_log_that_is_removed_ends_the_use_of_the_file(path, store):
    """Nothing is written to it any more: not even when the store is closed.

    Closing the last connection copies the log into the file, over a backup there.
    """
    store.enqueue([new_job()])
    copy = back_up(path)
    later = store.enqueue([new_job()] * 3)
    without_log(path)
    shutil.copyfile(copy, path)
    for _ in range(2):
        with pytest.raises(StoreWentBack, match=r"log of .* was removed.*restored"):
            store.enqueue([new_job()])
        with pytest.raises(StoreWentBack, match=r"log of .* was removed"):
            store.get(later[0].id)
    store.close()
    assert path.read_bytes() == copy.read_bytes()


def test_a_log_that_is_removed_is_noticed_at_the_close_too(path, store):
    """The last use may have been before it."""
    store.enqueue([new_job()] * 3)
    copy = back_up(path)
    store.enqueue([new_job()] * 3)
    without_log(path)
    shutil.copyfile(copy, path)
    store.close()
    assert path.read_bytes() == copy.read_bytes()


def test_a_file_that_was_copied_over_is_noticed_by_its_header(path, store):
    """Its log is still there, so what this process reads looks as it did."""
    known = Watermark("run-1")
    copy = back_up(path)
    with store._database.reading() as session:
        session.rows("checkpoint")
    store.confirm(known)
    store.enqueue([new_job()])
    shutil.copyfile(copy, path)
    with pytest.raises(StoreWentBack, match="another file was copied over it"):
        store.renew("run-1", 60.0, known=known)


def test_a_checkpoint_is_no_older_header(path, store):
    """Nor is a vacuum by hand."""
    known = Watermark("run-1")
    for statement in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM"):
        store.confirm(known)
        store.settle([succeeded(lease_one(store)) for _ in store.enqueue([new_job()])])
        with closing(sqlite3.connect(path, isolation_level=None)) as hand:
            hand.execute(statement).fetchall()
            hand.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        store.confirm(known)


def test_a_replaced_file_is_compared_once_it_is_open_again(path, store):
    """It has another inode: the first call fails, and the next ones use that file."""
    known = Watermark("run-1")
    store.confirm(known)
    copy = back_up(path)
    known.renewals = 1
    shutil.copyfile(copy, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
    without_log(path)
    with pytest.raises(StoreUnavailable, match="replaced"):
        store.enqueue([new_job()])
    with pytest.raises(StoreWentBack, match="lost the newest 1 of this run's renewals"):
        store.confirm(known)


def test_a_log_that_cannot_be_looked_at_after_a_commit_leaves_it_unknown(
    path, store, monkeypatch
):
    """The commit may have gone to a log that nobody will read; or it has happened."""

    def cannot(looked_at):
        if str(looked_at).endswith("-wal"):
            raise StoreUnavailable("the directory cannot be read")
        return identity_of(looked_at)

    with monkeypatch.context() as patched:
        patched.setattr(commit, "identity_of", cannot)
        with pytest.raises(OutcomeUnknown, match="can no longer be"):
            store.enqueue([new_job()])
    assert store.count(Filter()) == 1
