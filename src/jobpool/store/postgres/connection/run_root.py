"""Where this host's supervisors of a PostgreSQL store keep their run directories.

The database is elsewhere, so the directories need a place of their own that is the same
for all supervisors of one user on one host, and that survives a restart of the service:
only then can one prove another dead at once, instead of waiting for its lease to run
out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

BASE_VARIABLE = "JOBPOOL_RUN_DIR"


def run_base(env: Mapping[str, str]) -> Path:
    """Return the directory for all stores.

    Args:
        env: the environment. In this order: ``JOBPOOL_RUN_DIR``; systemd's
            ``STATE_DIRECTORY``; ``XDG_STATE_HOME``; ``HOME``; Windows'
            ``LOCALAPPDATA``; else ``/var/tmp``.
    """
    if own := env.get(BASE_VARIABLE):
        return Path(own)
    if state := env.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(state, "run")
    if xdg := env.get("XDG_STATE_HOME"):
        return Path(xdg, "jobpool")
    if home := env.get("HOME"):
        return Path(home, ".local", "state", "jobpool")
    if local := env.get("LOCALAPPDATA"):
        return Path(local, "jobpool")
    # Not /tmp: old files there may be cleaned up while the run is alive.
    return Path("/var/tmp", f"jobpool-{os.getuid()}")  # noqa: S108 - its own, by uid


def run_root_of(store_id: int, env: Mapping[str, str]) -> Path:
    """Return the directory for one store, named by the store's id."""
    return run_base(env) / f"{store_id:015x}.run"
