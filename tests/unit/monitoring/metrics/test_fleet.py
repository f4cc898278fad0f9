"""The gauges of the fleet: what is in the store, how old that is, and never a wait."""

import pytest

from jobpool.errors import ConfigError, StoreUnavailable
from jobpool.monitoring.metrics import catalogue
from jobpool.monitoring.metrics import fleet as fleets
from jobpool.monitoring.metrics.fleet import FleetMetrics, values_of
from jobpool.monitoring.scaling import scaling_of
from support.store.storing import lease, new_job, succeeded
from support.waiting import wait_until


def samples(families):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def read(store, **options):
    return samples(
        values_of(store, scaling_of(store), **options).families(catalogue.CATALOGUE)
    )


DEADLINE_S = 30
PLACE = ("shop.thumbnail", "cpu")


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let a scrape wait for what is read first, as long as that takes here."""
    monkeypatch.setattr(fleets, "_FIRST_S", float(DEADLINE_S))


def test_known_kinds_have_series_with_0(store):
    """A queue that has drained is 0, and no gap."""
    found = read(store)
    for state in ("pending", "runnable", "leased", "dead", "quarantined"):
        assert found["jobpool_jobs", *PLACE, state, "normal"] == 0
    assert found["jobpool_oldest_runnable_age_seconds", *PLACE] == 0
    assert found["jobpool_flows", "open"] == 0


def test_depth_is_by_state_and_band(store):
    store.enqueue([new_job(), new_job(), new_job(priority=5), new_job(priority=-1)])
    lease(store, limit=1)
    found = read(store)
    assert found["jobpool_jobs", *PLACE, "leased", "high"] == 1
    assert found["jobpool_jobs", *PLACE, "runnable", "normal"] == 2
    assert found["jobpool_jobs", *PLACE, "runnable", "low"] == 1


def test_what_has_succeeded_is_no_depth(store):
    store.enqueue([new_job()])
    store.settle([succeeded(one) for one in lease(store)])
    assert (
        sum(value for key, value in read(store).items() if key[0] == "jobpool_jobs")
        == 0
    )


def test_tenants_are_counted_only_if_asked_for(store):
    store.enqueue([new_job(tenant="acme")] * 3)
    name = "jobpool_tenant_jobs"
    assert not [key for key in read(store) if key[0] == name]
    assert read(store, by_tenant=True)[name, "acme", "runnable"] == 3


def test_pauses_unknown_kinds_and_supervisors_are_there(store):
    store.enqueue([new_job("shop.gone", pool="cpu")])
    found = read(store)
    assert found["jobpool_unknown_kind_jobs", "shop.gone", "cpu"] == 1
    assert found["jobpool_supervisors", "cpu", "alive"] == 1
    assert found["jobpool_supervisors", "cpu", "silent"] == 0


def test_a_scrape_gets_what_was_read_last_and_its_age(store):
    store.enqueue([new_job()] * 3)
    fleet = FleetMetrics(lambda: store)
    fleet.start()
    try:
        found = samples(fleet.collect())
        assert found["jobpool_fleet_up",] == 1
        assert found["jobpool_jobs", *PLACE, "runnable", "normal"] == 3
        assert 0 <= found["jobpool_fleet_age_seconds",] < 60
    finally:
        fleet.close()


class Away:
    """A store that goes away after it was read once."""

    def __init__(self, store):
        self._store = store
        self.is_away = False

    def __call__(self):
        if self.is_away:
            raise StoreUnavailable("the server went away")
        return self

    def __getattr__(self, name):
        if self.is_away and name == "open_runs":
            raise StoreUnavailable("the server went away")
        return getattr(self._store, name)

    def close(self):
        """It is opened again afterwards."""


def test_a_store_that_is_away_leaves_the_gauges_and_says_so(store):
    """A scrape does not hang, and depth does not fall to 0 meanwhile."""
    store.enqueue([new_job()])
    away = Away(store)
    fleet = FleetMetrics(away, every_s=0.01)
    fleet.start()
    try:
        assert samples(fleet.collect())["jobpool_fleet_up",] == 1
        away.is_away = True
        wait_until(lambda: fleet.error, DEADLINE_S, "the reader has noticed")
        found = samples(fleet.collect())
        assert found["jobpool_fleet_up",] == 0
        assert found["jobpool_jobs", *PLACE, "runnable", "normal"] == 1
        away.is_away = False
        wait_until(lambda: not fleet.error, DEADLINE_S, "it is read again")
        assert samples(fleet.collect())["jobpool_fleet_up",] == 1
    finally:
        fleet.close()


def test_a_store_that_was_never_there_is_down(store):
    away = Away(store)
    away.is_away = True
    fleet = FleetMetrics(away)
    fleet.start()
    try:
        assert samples(fleet.collect()) == {("jobpool_fleet_up",): 0.0}
    finally:
        fleet.close()


def test_after_a_bug_it_is_read_again(store):
    """One strange row must not end the metrics of the fleet; it is down meanwhile."""
    depths, store.depths = store.depths, lambda: {}["state"]
    fleet = FleetMetrics(Away(store), every_s=0.01)
    fleet.start()
    try:
        assert samples(fleet.collect())["jobpool_fleet_up",] == 0
        assert fleet.error.startswith("KeyError: 'state' (test_fleet.py:")
        store.depths = depths
        wait_until(lambda: not fleet.error, DEADLINE_S, "it is read again")
        assert samples(fleet.collect())["jobpool_fleet_up",] == 1
    finally:
        fleet.close()


@pytest.mark.parametrize("error", [ConfigError("no driver"), KeyError("a bug")])
def test_what_cannot_be_read_for_any_reason_is_said(error):
    """Nobody is served gauges that nobody reads any more."""

    def opener():
        raise error

    fleet = FleetMetrics(opener)
    fleet.start()
    try:
        assert fleet.tried.wait(DEADLINE_S)
        assert str(error) in fleet.error
        assert samples(fleet.collect())["jobpool_fleet_up",] == 0
        assert fleet.scaling() is None
    finally:
        fleet.close()


def test_a_supervisor_with_a_long_lease_is_not_silent_between_two_renewals(
    store, monkeypatch
):
    """It is heard of only every third of that."""
    now_ms = store.position().now_ms
    monkeypatch.setattr(store._clock, "utc_ms", lambda: now_ms)
    store.renew("run-1", 300.0, anew=True)
    monkeypatch.setattr(store._clock, "utc_ms", lambda: now_ms + 290_000)
    assert read(store)["jobpool_supervisors", "cpu", "silent"] == 0
    monkeypatch.setattr(store._clock, "utc_ms", lambda: now_ms + 310_000)
    assert read(store)["jobpool_supervisors", "cpu", "silent"] == 1


@pytest.mark.parametrize("one_host", [True, False])
def test_a_supervisor_that_was_lost_an_hour_ago_is_not_silent_for_a_day(
    store, monkeypatch, one_host
):
    """Others have taken its jobs, and nobody need look: its pool is still there.

    Where no lease expires it may be stopped, and hold its jobs: it stays silent.
    """
    monkeypatch.setattr(type(store), "one_host", one_host)
    until_ms = store.open_runs()[0].lease_until_ms
    monkeypatch.setattr(store._clock, "utc_ms", lambda: until_ms + 3_599_000)
    assert read(store)["jobpool_supervisors", "cpu", "silent"] == 1
    monkeypatch.setattr(store._clock, "utc_ms", lambda: until_ms + 3_601_000)
    found = read(store)
    assert found["jobpool_supervisors", "cpu", "silent"] == one_host
    assert found["jobpool_supervisors", "cpu", "alive"] == 0
    assert (found["jobpool_heartbeat_age_seconds",] > 3600) == one_host
