"""`[traces]`: where spans are sent, and how many traces are recorded."""

import pytest

from jobpool.core.config.load import read_sources, traces_of
from jobpool.core.config.settings import TraceLinks
from jobpool.errors import ConfigError
from support.configuring import HERE, build, toml


def links(files):
    return traces_of(read_sources({}, env={}, directory=HERE, read_file=files.get))


def settings(text=""):
    return build(files=toml(f"[traces]\n{text}")).settings


def test_nothing_is_sent_unless_it_is_said_where():
    assert (settings().traces_otlp, settings().traces_sample) == (None, 1.0)
    assert settings('otlp = "none"\nsample = 0').traces_sample == 0.0


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
        ("https://otlp.example.com/tenant/", "https://otlp.example.com/tenant"),
        ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
    ],
)
def test_a_url_is_read(url, read):
    assert settings(f'otlp = "{url}"').traces_otlp == read


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('otlp = "127.0.0.1:4318"', "expected an http or https URL"),
        ('otlp = "grpc://127.0.0.1:4317"', "expected an http or https URL"),
        ('otlp = "http://"', "expected an http or https URL"),
        ('otlp = "http://x:99999"', "expected an http or https URL"),
        ('otlp = "http://x/?key=1"', "expected an http or https URL"),
        ("otlp = 4318", "expected an http or https URL"),
        ('link = "tempo.example/{trace_id}"', "expected an http or https URL"),
        ('link = "javascript:{trace_id}"', "expected an http or https URL"),
        ('link = "https://tempo.example/"', "expected an http or https URL"),
        ('link = "https://{trace_id}.example/"', "expected an http or https URL"),
        (
            f'link = "https://tempo.example/{{trace_id}}{"x" * 2000}"',
            "an http or https",
        ),
        ('link = "https://u:p@tempo.example/{trace_id}"', "leave it out"),
        ('link = "https://tempo.example/\\n{trace_id}"', "expected an http or https"),
        ("sample = 1.5", "share from 0 to 1"),
        ("sample = -0.1", "share from 0 to 1"),
        ("sample = true", "share from 0 to 1"),
        ('sample = "1%"', "share from 0 to 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, match):
    with pytest.raises(ConfigError, match=match):
        settings(text)


def test_a_password_in_the_url_is_refused_and_not_repeated():
    """Settings are shown: by `check`, in logs and by the dashboard."""
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_HEADERS") as caught:
        settings('otlp = "https://user:s3cret@x.example"')
    assert "s3cret" not in str(caught.value)


LINK = "https://tempo.example/trace/{trace_id}?org=1"


@pytest.mark.parametrize(
    ("text", "sample"), [("", 0.0), ('otlp = "http://x"\nsample = 0.5\n', 0.5)]
)
def test_where_people_look_at_traces_is_read_by_who_shows_jobs(text, sample):
    """Traces that begin with a job are there only if spans are sent."""
    files = toml(f'[traces]\n{text}link = "{LINK}"')
    assert links(files) == TraceLinks(link=LINK, sample=sample)
    assert build(files=files).settings.traces_link == LINK
    assert links({}) == TraceLinks()
