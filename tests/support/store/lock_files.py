"""The writers' lock of a SQLite store, as another process meets it."""

import subprocess
import sys
from contextlib import contextmanager

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


TRY = """
import fcntl, sys
try: fcntl.lockf(open(sys.argv[1], "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError: print("taken")
"""


def is_taken(lock_file):
    """Ask from another process: in ours the answer would be no."""
    run = subprocess.run(
        [sys.executable, "-c", TRY, lock_file], capture_output=True, check=True
    )
    return run.stdout == b"taken\n"


@contextmanager
def holding(lock_file):
    """Let another process hold the lock, until its stdin is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, lock_file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.stdin.close()
        process.stdout.close()
        assert process.wait(60) == 0
