"""`[sentry]`: where errors are reported, and which."""

import pytest

from jobpool.core.config.settings import SentrySettings
from jobpool.errors import ConfigError
from support.configuring import build, toml

DSN = "https://5ecre7@o1.ingest.sentry.io/42"


def configured(text=""):
    return build(files=toml(f"[sentry]\n{text}"))


def test_nothing_is_reported_unless_it_is_said_where():
    assert configured().settings.sentry is None
    assert configured('dsn = "none"\neach = true').settings.sentry is None


@pytest.mark.parametrize(
    "dsn",
    [DSN, "http://key:old@sentry.example:9000/path/7", "environment"],
)
def test_a_dsn_is_read(dsn):
    assert configured(f'dsn = "{dsn}"').settings.sentry == SentrySettings(dsn=dsn)
    every = configured(f'dsn = "{dsn}"\neach = true\nmonitors = true').settings.sentry
    assert every == SentrySettings(dsn=dsn, each=True, monitors=True)


@pytest.mark.parametrize(
    "text",
    [
        '"o1.ingest.sentry.io/42"',
        '"https://o1.ingest.sentry.io/42"',
        '"https://5ecre7@o1.ingest.sentry.io"',
        '"grpc://5ecre7@host/42"',
        '""',
        "42",
    ],
)
def test_what_is_no_dsn_is_refused_and_not_repeated(text):
    with pytest.raises(ConfigError, match="expected a project's DSN") as caught:
        configured(f"dsn = {text}")
    assert "5ecre7" not in str(caught.value)


def test_the_key_is_not_listed():
    """`check --verbose` and the dashboard show settings."""
    value = configured(f'dsn = "{DSN}"').values["sentry.dsn"]
    assert (value.value, value.shown) == ("https://…@o1.ingest.sentry.io/42",) * 2
