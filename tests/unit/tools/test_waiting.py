"""Time is measured by a machine that runs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.waiting import Running

TESTS = Path(__file__).parents[2]
STOPPED_S = 0.4
PROGRAM = """
import sys, time
from support.waiting import Running

with Running() as running:
    print("runs", flush=True)
    sys.stdin.readline()
    print(time.monotonic() - running.began_s - running.ran_s())
"""


def test_what_runs_all_the_time_is_counted_whole():
    with Running() as running:
        until_s = running.began_s + 5.0
        assert running.ran_s(until_s, until_s + 2.0) == 2.0


def test_what_nothing_runs_in_is_not_counted():
    """Whichever thread is the first one to run again."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGSTOP)
        process.stdin.write("\n")
        process.stdin.flush()
        time.sleep(STOPPED_S)  # the standstill itself
        process.send_signal(signal.SIGCONT)
        assert float(process.stdout.read()) >= STOPPED_S - Running.LATE_S
