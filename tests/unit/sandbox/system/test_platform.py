"""What is known of processes without /proc."""

import os
import subprocess
import sys
import time

from jobpool.sandbox.system.platform import boot_id, has_ended, pid_namespace


def test_a_process_that_runs_has_not_ended():
    assert not has_ended(os.getpid(), time.time_ns() // 1_000_000)


def test_a_process_that_is_gone_has_ended():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert has_ended(gone.pid, time.time_ns() // 1_000_000)


def test_a_number_that_another_process_has_by_now_is_told_from_it():
    """It began after the moment at which the one that is meant was alive."""
    assert has_ended(os.getpid(), 1_000)


def test_on_linux_boot_and_namespace_are_the_kernels():
    assert len(boot_id()) == 36
    assert pid_namespace() > 0
