"""Time zones: by the names of the database, with errors that say what to do."""

import zoneinfo
from datetime import UTC

import pytest

from jobpool.core.rules.schedules.zone import _hint, local_time, zone_of
from jobpool.errors import ConfigError


@pytest.fixture
def no_database(monkeypatch):
    """A host without time zones, as slim containers are."""

    def unknown(key):
        raise zoneinfo.ZoneInfoNotFoundError(f"No time zone found with key {key}")

    monkeypatch.setattr(zoneinfo, "ZoneInfo", unknown)
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    caches = (zone_of, _hint)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def test_utc_needs_no_database(no_database):
    assert zone_of("UTC") is UTC


def test_without_a_database_the_error_says_how_to_get_one(no_database):
    with pytest.raises(ConfigError, match=r"no database of time zones; .*apt-get"):
        zone_of("Europe/Berlin")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Europe/Berlim", r"unknown here \(did you mean 'Europe/Berlin'\?\)"),
        ("europe/berlin", r"did you mean 'Europe/Berlin'\?"),
        ("Mars", "unknown here.*expected a name such as"),
        ("Europe", "unknown here"),
        ("tzdata", "unknown here"),
        ("zone1970", "unknown here"),
        ("localtime", "not the name of a time zone"),
        ("right/Europe/Berlin", "not the name of a time zone"),
        ("../../etc/passwd", "not the name"),
        ("/etc/localtime", "not the name"),
        ("", "not the name"),
        ("Zürich", "not the name"),
        ("Europe/Berlin\n", "not the name"),
        ("a" * 10_000_000, "not the name"),
    ],
)
def test_other_names_are_refused(name, said):
    with pytest.raises(ConfigError, match=said) as caught:
        zone_of(name)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("at_ms", [-1, -(2**62), 2**62, 253_402_300_799_999])
def test_a_time_that_no_tick_can_have_is_shown_as_one(at_ms):
    """Another program has written it; the rest of a list is shown as well."""
    for zone in ("UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"):
        assert 1969 <= local_time(at_ms, zone).year <= 9900
