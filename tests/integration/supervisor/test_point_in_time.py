"""PostgreSQL is recovered to a point in time under its supervisor, at one address."""

import pytest

from jobpool.cli.exits import Exit
from jobpool.store.opening import open_store
from support.postgres.recovering import recoverable
from support.site.supervising import PATIENCE_S, Site, is_alive
from support.waiting import Running, wait_until

APP = """
@jobs.job("cpu", kind="held", timeout="10m")
def held(gate: str):
    hold(gate)


@jobs.job("io", kind="quick")
def quick():
    witness()
"""
NOTICED_S = 15.0
"""The server's start, and a renewal."""
MILLION = 10**6
LATER = 20


@pytest.fixture
def site(tmp_path):
    with recoverable() as server, Site(tmp_path, APP) as site:
        site.server = server
        site.url = server.fresh_url(server.tcp_url)
        open_store(site.url).close()
        yield site
        site.close()


def renewals_of(site):
    """Return how often the only run was renewed."""
    schema = site.url.rpartition("schema=")[2]
    with site.server.connect() as connection:
        query = f"SELECT coalesce(max(renewals), 0) FROM {schema}.runs"  # noqa: S608
        return connection.execute(query).fetchone()[0]


def test_work_goes_on_after_a_recovery_to_a_point_in_time(site):
    """The old supervisor stops; tokens and ids go on above all; each old job ends."""
    env = {
        "JOBPOOL_STORE": site.url,
        "JOBPOOL_RUN_DIR": str(site.folder / "runs"),
        "JOBPOOL_DRAIN": "1s",
    }
    (site.folder / "runs").mkdir(mode=0o700)
    site.server.back_up()
    first = site.start("cpu=1,io=1", env=env)
    old = [site.add("held", {"gate": "open"}) for _ in range(2)]
    child = site.wait_begun(old[0]).pid
    with site.server.connect() as connection:
        until = connection.execute("SELECT clock_timestamp()::text").fetchone()[0]
    renewed = renewals_of(site)
    later = site.add_many("quick", [{}] * LATER, pool="io")
    site.finish_all(later)
    schema = site.url.rpartition("schema=")[2]
    with site.server.connect() as connection:
        connection.execute(
            f"SELECT nextval('{schema}.tokens') FROM generate_series(1, {MILLION})"  # noqa: S608
        )
        unseen = connection.execute(
            f"SELECT last_value FROM {schema}.tokens"  # noqa: S608
        ).fetchone()[0]
    before = site.witnesses()
    # The one that is under way now may be without an answer; the next one tells of it.
    wait_until(lambda: renewals_of(site) >= renewed + 2, PATIENCE_S, "renewals to lose")

    site.close_store()
    site.server.recover(until)
    with Running() as running:
        assert first.wait_exit() == Exit.WENT_BACK
        assert running.ran_s() < NOTICED_S
    assert not is_alive(child)
    (said,) = first.events("store_went_back")
    assert "it has lost the newest" in said["error"]
    assert site.store.describe()["stale_settlements"] == "0"
    assert [site.job(job).state for job in old] == ["leased", "runnable"]
    assert site.job(later[0]) is None

    (told,) = site.cli("restored", "--last-id", later[-1])
    assert [one["id"] for one in told["taken_back"]] == old[:1]
    assert told["lost_at_most"] == later[-1] - told["backup_newest_id"] >= LATER
    second = site.start("cpu=1,io=1", env=env)
    new = site.add("quick", pool="io")
    assert new > later[-1]
    site.open_gate("open")
    wait_until(site.store.open_runs, PATIENCE_S, "the new run")
    assert site.witnesses() == before
    site.cli("resume", "--all")
    assert {job.state for job in site.finish_all([*old, new])} == {"succeeded"}
    after = [one.token for one in site.witnesses()[len(before) :]]
    assert len(after) == 3
    assert min(after) > unseen << 20
    assert min(after) > max(one.token for one in before)
    assert second.stop() == 0
    assert site.store.describe()["stale_settlements"] == "0"
