"""Lets two supervisors serve jobs at a vendor that refuses, and is down for a minute.

The vendor is a real HTTP server that takes 100 requests a second; the quota lets 150
begin. It refuses the rest, and says to wait in all forms that HTTP has. Each job has
one attempt. The vendor's own ledger must show: each job was served once, and nobody
asked 1 s after it had said to wait (2 s on other hosts) and before that was over.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time

from support.postgres.server import server
from support.site.supervising import Site
from support.site.vendor import APP, Vendor, trial

PATIENCE_S = 1800.0


def main() -> int:
    """Run the trial; return 0 only if nothing is wrong."""
    parser = argparse.ArgumentParser(
        prog="scripts/vendor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--down", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--postgres", action="store_true", help="instead of SQLite")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        Site(directory, APP) as site,
        Vendor() as vendor,
    ):
        if given.postgres:
            site.url = server().store_url()
        env = {"JOBPOOL_STORE": site.url, "JOBPOOL_RUN_DIR": f"{directory}/runs"}
        began_s = time.monotonic()
        jobs = trial(
            site,
            vendor,
            given.jobs,
            down_s=given.down,
            patience_s=PATIENCE_S,
            env=env,
        )
        took_s = time.monotonic() - began_s
        heard_s = 2.0 if given.postgres else 1.0
        unserved = [n for n in range(given.jobs) if vendor.served()[n] != 1]
        charged = [job.id for job in jobs if job.state != "succeeded" or job.failures]
        disturbed = vendor.disturbed(heard_s)
        print(
            f"{given.jobs} jobs in {took_s:.0f} s, {given.down:g} s of it down; "
            f"{len(vendor.ledger)} requests, {len(vendor.refusals())} refused; wrong: "
            f"{len(unserved)} jobs not served once, {len(charged)} charged or not "
            f"done, {len(disturbed)} requests while it wanted to be left alone"
        )
    return 1 if unserved or charged or disturbed else 0


if __name__ == "__main__":
    sys.exit(main())
