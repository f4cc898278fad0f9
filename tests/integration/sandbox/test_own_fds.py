"""Where a child's own descriptors go, as far as its limit lets them."""

import json
import subprocess
import sys

import pytest

from jobpool.sandbox.system.own_fds import OWN_FROM

MOVE = """
import json, os, resource, sys
from jobpool.sandbox.system.own_fds import open_own, out_of_reach
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
before = os.open(os.devnull, os.O_RDONLY)
moved = out_of_reach(before)
opened = open_own(os.devnull, os.O_RDONLY)
try:
    os.fstat(before)
    is_closed = False
except OSError:
    is_closed = True
flags = [os.get_inheritable(fd) for fd in (moved, opened)]
print(json.dumps([before, moved, opened, is_closed, any(flags)]))
"""


@pytest.mark.parametrize(("limit", "least"), [(4096, OWN_FROM), (256, 192), (64, 0)])
def test_own_descriptors_are_as_high_as_the_limit_allows(limit, least):
    """Where no high number is allowed, they stay.

    No program that is run inherits them.
    """
    output = subprocess.run(
        [sys.executable, "-c", MOVE, str(limit)],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    before, moved, opened, is_closed, is_inherited = json.loads(output)
    assert not is_inherited
    if least:
        assert (moved, opened, is_closed) == (least, least + 1, True)
    else:
        assert (moved, opened, is_closed) == (before, before + 1, False)
