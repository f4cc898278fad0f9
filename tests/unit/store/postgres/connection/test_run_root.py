"""The directory for the supervisors of all PostgreSQL queues on a host."""

import os
from pathlib import Path

import pytest

from jobpool.store.postgres.connection.run_root import run_base, run_root_of

ALL = {
    "JOBPOOL_RUN_DIR": "/own",
    "STATE_DIRECTORY": "/state:/more",
    "XDG_STATE_HOME": "/xdg",
    "HOME": "/home/me",
}


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (0, "/own"),
        (1, "/state/run"),
        (2, "/xdg/jobpool"),
        (3, "/home/me/.local/state/jobpool"),
        (4, f"/var/tmp/jobpool-{os.getuid()}"),
    ],
)
def test_the_run_base_is_the_first_one_that_is_set(gone, expected):
    """Our own variable, systemd, the desktop, the home, the host.

    Empty ones are skipped.
    """
    env = {
        name: "" if n < gone else value for n, (name, value) in enumerate(ALL.items())
    }
    assert run_base(env) == Path(expected)


def test_a_stores_directory_is_named_by_its_id():
    """With so many digits that names sort and have one length."""
    assert run_root_of(0xABC, ALL) == Path("/own/000000000000abc.run")
