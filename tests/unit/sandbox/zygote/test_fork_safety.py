"""What an import has left running is found, however late a processor is free for it."""

import threading
from types import SimpleNamespace

import pytest

from jobpool.errors import AppError
from jobpool.sandbox.zygote import fork_safety


class Machine:
    """A thread without a name was just started; it counts itself once it has run."""

    def __init__(self, patch, runs_after_s):
        self.now_s, self.runs_after_s = 100.0, 100.0 + runs_after_s
        patch.setattr(fork_safety, "time", self)
        main = threading.main_thread()  # other tests' threads may still run
        patch.setattr(threading, "enumerate", lambda: [main])
        patch.setattr(fork_safety, "_unknown_tasks", lambda: [2**22])
        patch.setattr(
            fork_safety,
            "process_stat",
            lambda _task: SimpleNamespace(state="S" if self.has_run() else "R"),
        )
        patch.setattr(
            fork_safety, "_thread", SimpleNamespace(_count=lambda: int(self.has_run()))
        )

    def has_run(self):
        return self.now_s >= self.runs_after_s

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds


@pytest.mark.parametrize("runs_after_s", [0.0, 0.015, 0.5, 1.5])
def test_a_thread_that_was_just_started_is_waited_for(monkeypatch, runs_after_s):
    """On a busy machine it counts itself late, and would be lost in each fork."""
    Machine(monkeypatch, runs_after_s)
    with pytest.raises(AppError, match="1 without a name"):
        fork_safety.check_fork_safety()


def test_threads_that_run_on_delay_a_start_for_a_moment_only(monkeypatch):
    """A library's may spin for work: they are named, and no reason to refuse."""
    machine = Machine(monkeypatch, 1000.0)
    assert "1 threads of C libraries" in fork_safety.check_fork_safety()[0]
    assert machine.now_s < 100.0 + 2 * fork_safety.SETTLE_S_MAX
