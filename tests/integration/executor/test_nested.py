"""An executor inside an executor's call.

All its processes are in the outer call's tree.
"""

import os
import time
from concurrent.futures import BrokenExecutor

import jobpool
from support.machine.executing import (
    PATIENCE_S,
    STOOD_STILL,
    host_of,
    marked,
    wait_nobody,
)
from support.site.supervising import children_of
from support.waiting import wait_until


def use(n):
    """Use several functions in children of this child; return the outcomes."""
    with jobpool.Executor(2) as inner:
        products = list(inner.map(lambda x: x * n, range(10)))
        died = inner.submit(os._exit, 3).exception(PATIENCE_S)
        return products, type(died), inner.submit(os.getpid).result(PATIENCE_S)


def nest(depth):
    if not depth:
        return [os.getpid()]
    with jobpool.Executor(1) as inner:
        return [os.getpid(), *inner.submit(nest, depth - 1).result(PATIENCE_S)]


def test_a_call_may_use_an_executor(capfd):
    """Results and deaths belong to its own calls; its child works on afterwards."""
    with jobpool.Executor(1) as executor:
        before = executor.submit(os.getpid).result(PATIENCE_S)
        products, died, inner = executor.submit(use, 3).result(PATIENCE_S)
        assert products == [3 * n for n in range(10)]
        assert died is jobpool.JobCrashed
        assert inner != before
        after = executor.submit(os.getpid).result(PATIENCE_S)
        assert after == before or STOOD_STILL in capfd.readouterr().err
        assert len(set(executor.submit(nest, 2).result(PATIENCE_S))) == 3


def test_what_an_inner_executor_started_dies_with_its_call(marker, tmp_path):
    """At the outer call's time limit, in the middle of the inner one's work."""
    note = tmp_path / "note"

    def outlast():
        with jobpool.Executor(2) as inner:
            inner.submit(note.touch).result(PATIENCE_S)
            inner.submit(time.sleep, 2 * PATIENCE_S).result()

    with jobpool.Executor(1) as executor:
        executor.submit(abs, -1).result(PATIENCE_S)
        quiet = len(marked(marker))

        def was_at_work(limit_s):
            """Say whether the inner call had begun when the outer one was killed."""
            note.unlink(missing_ok=True)
            future = executor.options(timeout=limit_s).submit(outlast)
            wait_until(lambda: note.exists() or future.done(), 2 * PATIENCE_S, "it")
            were_there = len(marked(marker)) > quiet + 2
            error = future.exception(2 * PATIENCE_S)
            assert isinstance(error, jobpool.JobTimedOut)
            wait_until(lambda: len(marked(marker)) <= quiet, PATIENCE_S, "their end")
            return were_there

        # On a busy machine it takes longer until it has begun.
        assert any(map(was_at_work, (5, 20, PATIENCE_S)))
        assert executor.submit(abs, -2).result(PATIENCE_S) == 2
    wait_nobody(marker)


def test_an_inner_executor_that_is_left_open_ends_with_its_call(marker):
    """Its processes count as left behind by the call; the child is replaced."""
    with jobpool.Executor(1) as executor:
        executor.submit(abs, -1).result(PATIENCE_S)
        quiet = len(children_of(host_of(executor)))
        before = executor.submit(leave_open).result(PATIENCE_S)
        after = executor.submit(use_what_was_left).result(PATIENCE_S)
        assert after[0] != before
        assert after[1] == "nothing was left"
        wait_until(
            lambda: len(children_of(host_of(executor))) <= quiet,
            PATIENCE_S,
            "the end of what was left",
        )
    wait_nobody(marker)


kept = []


def leave_open():
    kept.append(jobpool.Executor(1))
    kept[0].submit(abs, -1).result(PATIENCE_S)
    return os.getpid()


def use_what_was_left():
    try:
        said = str(kept[0].submit(abs, -1).result(PATIENCE_S))
    except IndexError:
        said = "nothing was left"
    except BrokenExecutor as error:
        said = str(error)
    return os.getpid(), said
