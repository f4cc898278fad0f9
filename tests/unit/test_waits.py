"""Numbers: how long each wait is, and how old a database may be."""

import importlib

import pytest

PROMISED = {
    # A call on PostgreSQL hears an answer within this, or is told that there is none.
    ("jobpool.store.postgres.store", "PATIENCE_S"): 30,
    # A commit whose answer was lost is asked for so long.
    ("jobpool.store.postgres.connection.database", "DOUBT_S"): 30,
    # A move's last step copies everything in one transaction.
    ("jobpool.store.move.target", "PATIENCE_S"): 3600,
    # A session that is open for longer is a concern.
    ("jobpool.store.postgres.health", "SNAPSHOT_PATIENCE_S"): 60,
    # Wake-ups of one process, per second and at once.
    ("jobpool.store.postgres.store", "WAKES_PER_S"): 20,
    ("jobpool.store.postgres.store", "WAKES_AT_ONCE"): 20,
    # Other writers of the file have their turn; strangers are waited for half as long.
    ("jobpool.store.sqlite.connection.write_lock", "WAIT_S"): 10,
    ("jobpool.store.sqlite.connection.connect", "BUSY_TIMEOUT_S"): 5,
    ("jobpool.store.sqlite.connection.session", "BUSY_CHECK_S"): 0.1,
    # A wake-up never blocks its sender.
    ("jobpool.store.wakeup", "LOCK_S"): 0.1,
    # The oldest that the manual names.
    ("jobpool.store.sqlite.connection.connect", "OLDEST"): (3, 35, 0),
    ("jobpool.store.postgres.connection.connect", "OLDEST"): 140_000,
}


@pytest.mark.parametrize(("module", "name"), PROMISED, ids=str)
def test_a_wait_is_as_long_as_documented(module, name):
    """In the manual, in an error's text, or beside the constant."""
    found = getattr(importlib.import_module(module), name)
    assert found == PROMISED[module, name]
