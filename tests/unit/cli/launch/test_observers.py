"""What a start refuses that is to report to Sentry and cannot."""

import sys

import pytest

from jobpool.cli.launch.observers import reported
from jobpool.errors import ConfigError
from support.configuring import build, toml

DSN = "https://key@sentry.example/42"


def entered(dsn, *, at_desk=False):
    settings = build(files=toml(f'[sentry]\ndsn = "{dsn}"\n')).settings
    with reported(settings, lambda _event: None, at_desk=at_desk) as observers:
        return observers


def test_nobody_hears_more_unless_it_is_wanted():
    assert entered("none") == ()


def test_without_the_extra_it_names_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "jobpool.monitoring.sentry.export", raising=False)
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    with pytest.raises(ConfigError, match=r"pip install 'jobpool\[sentry\]'"):
        entered(DSN)


def test_the_environment_has_the_dsn_if_it_is_to(monkeypatch):
    monkeypatch.setenv("SENTRY_DSN", DSN)
    assert len(entered("environment")) == 1
    for wrong in ("", "no dsn"):
        monkeypatch.setenv("SENTRY_DSN", wrong)
        with pytest.raises(ConfigError, match="the variable SENTRY_DSN: expected"):
            entered("environment")


def test_at_a_desk_the_environment_need_not_have_one(monkeypatch):
    """As Sentry's clients do: there nothing is reported then. A wrong one is said."""
    monkeypatch.delenv("SENTRY_DSN", raising=False)
    assert entered("environment", at_desk=True) == ()
    monkeypatch.setenv("SENTRY_DSN", DSN)
    assert len(entered("environment", at_desk=True)) == 1
    monkeypatch.setenv("SENTRY_DSN", "no dsn")
    with pytest.raises(ConfigError, match="the variable SENTRY_DSN: expected"):
        entered("environment", at_desk=True)
