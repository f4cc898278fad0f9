"""`jobpool exec` runs one program under limits, and says how it ended."""

import os
import signal
import subprocess
import sys

import pytest

from support.site.supervising import is_alive
from support.waiting import wait_until

PYTHON = sys.executable
EATS = """
import time
held = []
try:
    while True:
        held.append(bytearray(2**22))
except MemoryError:  # far above the limit; the kill is late on a busy machine
    time.sleep(60)
"""


def begun(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "jobpool", "exec", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_it_has_the_callers_streams_and_directory_and_its_own_exit_code(
    tmp_path,
):
    script = 'read line; echo "$line in $(pwd)"; echo careful >&2; exit 7'
    process = begun("--timeout", "60s", "--", "sh", "-c", script, cwd=tmp_path)
    out, err = process.communicate("hello\n", timeout=60)
    assert process.returncode == 7
    assert out == f"hello in {os.path.realpath(tmp_path)}\n"
    assert err.startswith("careful\njobpool: sh ended with exit status 7 after ")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--timeout", "300ms", "sleep", "60"], 124, "its time limit of 300ms"),
        (
            ["--memory", "60MiB", "sh", "-c", f"sleep 60 | {PYTHON} -c '{EATS}'"],
            137,
            "over its memory limit of 60MiB",
        ),
        (["sh", "-c", "kill -35 $$"], 128 + 35, "was ended by signal 35 after"),
        (["-q", "no-such-program"], 127, "was not started: No such file"),
        (["--memory", "much", "true"], 2, "'much' is not a size"),
    ],
)
def test_a_limit_or_a_start_that_fails_has_its_own_exit_code(words, status, said):
    process = begun(*words)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert said in err


def test_all_that_it_started_ends_with_it():
    """SIGTERM to the command leaves no process of the program."""
    process = begun("sh", "-c", "sleep 61 & echo $!; wait")
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "terminated" in err
    # Whoever adopts it may never reap it.
    wait_until(lambda: not is_alive(pid), 60, "the program is gone")
