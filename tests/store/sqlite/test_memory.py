"""What a supervisor's store does a million times a day leaves nothing behind."""

import sqlite3
import tracemalloc

from jobpool.store.sqlite.connection.session import Session

STATEMENTS = 3000


def test_a_statement_leaves_nothing_in_memory():
    """sqlite3 would keep a reference to each cursor made without cursor()."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.row_factory = sqlite3.Row
    session = Session(connection, ":memory:")

    def work():
        for _ in range(STATEMENTS):
            session.run("begin_deferred")
            session.run("commit")

    work()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    connection.close()
    assert after - before < 10 * STATEMENTS
