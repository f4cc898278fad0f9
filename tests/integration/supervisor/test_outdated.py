"""Features of a newer release come into use under a supervisor that is too old."""

import pytest

from jobpool.cli.exits import Exit
from jobpool.core.formats import FORMAT, TOO_OLD
from support.postgres.server import server
from support.site.supervising import Site

APP = """
@jobs.job("cpu", kind="held")
def held():
    hold("open")
    return current().token
"""


@pytest.fixture(params=["sqlite", "postgres"])
def site(request, tmp_path):
    with Site(tmp_path, APP) as site:
        if request.param == "postgres":
            site.url = server().fresh_url()
        yield site
    if request.param == "postgres":
        server().drop(site.url)


def test_an_outdated_supervisor_ends_what_it_runs_leases_nothing_and_says_why(site):
    """Its exit code is that of a store that it cannot use, as of its next start."""
    where = {"JOBPOOL_STORE": site.url, "JOBPOOL_RUN_DIR": str(site.folder)}
    supervisor = site.start("cpu=2", env=where)
    running = site.add("held")
    site.wait_begun(running)
    (run,) = site.store.open_runs()
    with site.store.transaction():
        site.store.leases_of(run.id)  # none is being asked for meanwhile
        with site.store._database.writing() as session:
            session.run("grant_format", granted=FORMAT + 1)
    event = supervisor.wait_event("supervisor_outdated")
    assert (event["level"], event["format"]) == ("error", FORMAT)
    assert "newer release" in supervisor.wait_event("supervisor_draining")["reason"]
    # Not sooner: on a server, a claim that waited for this grant knows nothing of it.
    # What makes a grant in earnest leaves out runs that may still claim.
    waiting = site.add("held")
    site.open_gate("open")
    assert supervisor.wait_exit() == Exit.STORE
    assert TOO_OLD in supervisor.said()
    assert site.job(running).state == "succeeded"
    assert (site.job(waiting).state, site.job(waiting).attempt) == ("runnable", 0)
    assert site.store.open_runs() == []
    again = site.launch("--pools", "cpu=1", env=where)
    assert again.wait_exit() == Exit.STORE
    assert f"knows formats up to {FORMAT}; upgrade jobpool here" in again.said()
