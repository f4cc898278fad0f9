"""Supervisors that share the pools of an application between them."""

import pytest

from support.site.supervising import Site

APP = """
@jobs.job("cpu", kind="compute")
def compute():
    return os.getppid()


@jobs.job("io", kind="fetch")
def fetch():
    return os.getppid()
"""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, APP) as site:
        yield site


def unserved(site):
    """Return the pools that the command warns of."""
    (found,) = site.cli("status")
    return [(row["pool"], row["jobs"]) for row in found["unserved_pools"]]


def test_each_supervisor_may_serve_some_of_the_pools(site):
    """It names the pools that it leaves out; no job is lost or taken by the other."""
    first = site.start("cpu=1")
    assert first.wait_event("pools_left")["pools"] == {"io": 1}
    computed, fetched = site.add("compute"), site.add("fetch", pool="io")
    assert site.result(computed) == first.pid
    assert unserved(site) == [("io", 1)]
    second = site.start("io=1")
    assert second.wait_event("pools_left")["pools"] == {"cpu": 1}
    assert site.result(fetched) == second.pid
    assert unserved(site) == []
    assert [one.stop() for one in (first, second)] == [0, 0]
