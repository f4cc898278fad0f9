"""Jobs at a vendor that refuses, wants to be left alone, and goes down for a while."""

import pytest

from support.postgres.server import server
from support.site.supervising import PATIENCE_S, Site
from support.site.vendor import APP, CAP, Vendor, trial

HEARD_S = {"sqlite": 1.0, "postgres": 2.0}
"""So soon nobody on the host, or on any host, asks any more."""


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_each_job_is_served_once_and_no_attempt_is_spent(tmp_path, database):
    """Neither by refusals nor by the outage; and who is asked to wait does."""
    with Site(tmp_path, APP) as site, Vendor() as vendor:
        if database == "postgres":
            site.url = server().store_url()
        env = {"JOBPOOL_STORE": site.url, "JOBPOOL_RUN_DIR": str(tmp_path / "runs")}
        jobs = trial(site, vendor, 160, down_s=3.0, patience_s=2 * PATIENCE_S, env=env)
        assert {(job.state, job.failures) for job in jobs} == {("succeeded", 0)}
        assert vendor.served() == dict.fromkeys(range(160), 1)
        assert vendor.refusals()
        assert vendor.most_at_once == CAP
        assert vendor.disturbed(HEARD_S[database]) == []
