"""Looking at the host."""

import subprocess
import sys

CODE = """
import os, resource
from jobpool.core.clock import SystemClock
from jobpool.sandbox.system import reserve_fds
from jobpool.sandbox.system.pressure import swapped_pages
from jobpool.supervisor.maintenance.host_watch import HostWatch

reserve_fds.keep()
watch = HostWatch(SystemClock())
before, swapped = watch.look(), swapped_pages()
highest = max(map(int, os.listdir("/proc/self/fd")))
taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest)]
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), 4096))
while True:
    try:
        taken.append(os.dup(0))
    except OSError:
        break
found = watch.look()
print(found.available_bytes > 0, not found.swapping or swapped_pages() > swapped)
print((found.memory_pressure is None) == (before.memory_pressure is None))
"""


def test_the_host_is_seen_without_a_free_descriptor():
    """Each look was an alarm, and what could not be read counted as swapping."""
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("True True\nTrue\n", "")
