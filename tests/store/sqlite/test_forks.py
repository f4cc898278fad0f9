"""A store in a process that forks.

The copy opens its own connection and holds nothing.
"""

import fcntl
import os
import sqlite3
import subprocess
import sys
import threading

from jobpool.store.records.operating import Filter
from jobpool.store.sqlite.connection import write_lock
from support.store.storing import begin_run, new_job

EVERYTHING = Filter()


def in_child(check):
    """Fork, run *check* in the child, and return its answer."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = b"did not answer"
        try:
            answer = repr(check()).encode()
        except BaseException as error:  # noqa: BLE001 - the child must not run pytest on
            answer = repr(error).encode()
        finally:
            os.write(writing, answer)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        answer = answers.read()
    os.waitpid(pid, 0)
    return answer.decode()


def test_a_store_opens_itself_again_after_a_fork(store, database_path):
    """Parent and child both go on, each with its own connection."""
    store.enqueue([new_job()])
    connection = store._database._session.connection

    def use():
        store.enqueue([new_job()])
        is_new = store._database._session.connection is not connection
        return is_new, store.count(EVERYTHING)

    assert in_child(use) == "(True, 2)"
    store.enqueue([new_job()])
    assert store.count(EVERYTHING) == 3
    check = sqlite3.connect(database_path)
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()


def test_a_fork_while_another_thread_writes_does_not_block_the_child(store):
    """The child's locks are its own: what the parent's thread held is free."""
    inside, leave = threading.Event(), threading.Event()

    def write():
        with store.transaction():
            store.enqueue([new_job()])
            inside.set()
            leave.wait(60)

    def use():
        return store.count(EVERYTHING)

    thread = threading.Thread(target=write)
    thread.start()
    assert inside.wait(60)
    assert in_child(use) == "0"
    leave.set()
    thread.join()
    assert store.count(EVERYTHING) == 1


def test_a_forked_child_cannot_commit_its_parents_transaction(store):
    """The child cannot commit it; the parent does."""
    with store.transaction():
        store.enqueue([new_job()])

        def use():
            try:
                with store._database.reading() as session:
                    return session.connection.in_transaction, store.count(EVERYTHING)
            finally:
                write_lock.WAIT_S = 0.01  # The parent has the lock: close() gives up.
                store.close()

        assert in_child(use) == "(False, 0)"
    assert store.count(EVERYTHING) == 1


def test_the_child_of_a_lock_holder_holds_nothing(store, lock_file):
    """A POSIX lock is not inherited, and the child's exit does not drop it."""
    with store.transaction():

        def try_to_lock():
            with lock_file.open("r+") as file:
                try:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return "taken"
            return "free"

        assert in_child(try_to_lock) == "'taken'"
        assert in_child(try_to_lock) == "'taken'"
    assert in_child(try_to_lock) == "'free'"


def test_a_stores_run_reads_the_same_in_every_process(store, store_url):
    """A commit of one process is visible to the next at once."""
    begin_run(store, "run-7")
    code = (
        "import sys\n"
        "from jobpool.store.opening import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "print([run.id for run in store.open_runs()])\n"
        "store.close()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, store_url], capture_output=True, check=True
    )
    assert b"run-7" in run.stdout
