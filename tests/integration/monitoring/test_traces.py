"""Whole traces as a receiver sees them: from who enqueues to what a killed job did."""

import json
import subprocess
import sys

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind

from jobpool import JobPool
from support.otlp import Receiver
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

APP = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor


@jobs.on_child_start
def trace_spans():
    provider = TracerProvider()
    exporter = OTLPSpanExporter(endpoint=(HERE / "receiver").read_text())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


@jobs.job("cpu", kind="shop.hang", timeout="5s", max_attempts=1)
def hang() -> None:
    with trace.get_tracer("shop").start_as_current_span("resize"):
        note.enqueue()
    time.sleep(60)


@jobs.job("cpu", kind="shop.note")
def note() -> str | None:
    return current().traceparent


@jobs.job("cpu", kind="shop.hold")
def held(gate: str) -> None:
    with trace.get_tracer("shop").start_as_current_span("hold"):
        pass
    hold(gate)


@jobs.job("cpu", kind="shop.wrong", max_attempts=2, retry={"Exception": ["1ms"]})
def wrong() -> None:
    raise ValueError("no such order")
"""


@pytest.fixture(scope="module")
def receiver():
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def site(tmp_path_factory, receiver):
    folder = tmp_path_factory.mktemp("site")
    config = f'[traces]\notlp = "{receiver.url}"\n'
    with Site(folder, APP, config=config) as site:
        (folder / "receiver").write_text(f"{receiver.url}/v1/traces")
        site.supervisor = site.start("cpu=2")
        yield site


def spans_of(receiver, name, number=1):
    """Wait for so many spans of a name."""

    def found():
        spans = receiver.named(name)
        return spans if len(spans) >= number else None

    return wait_until(found, PATIENCE_S, f"{number} spans {name}")


def test_one_trace_has_all_of_a_killed_job(site, receiver):
    """Who enqueued it, its attempt, what that traced, and the job that it enqueued."""
    provider = TracerProvider()
    exporter = OTLPSpanExporter(endpoint=f"{receiver.url}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    jobs = JobPool(store=site.store.url)

    @jobs.job("cpu", kind="shop.hang")
    def hang() -> None:
        """Stands for the application's."""

    with provider.get_tracer("web").start_as_current_span("POST /orders"):
        job = hang.enqueue()
    jobs.close()
    (attempt,) = spans_of(receiver, "process shop.hang")
    (request,) = spans_of(receiver, "POST /orders")
    (resize,) = spans_of(receiver, "resize")
    (note,) = spans_of(receiver, "process shop.note")
    trace = {one.trace_id for one in (request, attempt, resize, note)}
    assert len(trace) == 1
    assert (attempt.parent_id, attempt.links) == (request.span_id, (request.span_id,))
    assert (resize.parent_id, note.parent_id) == (attempt.span_id, resize.span_id)
    assert attempt.began_ns <= resize.began_ns <= resize.ended_ns <= attempt.ended_ns
    assert 5e9 <= attempt.ended_ns - attempt.began_ns < PATIENCE_S * 1e9
    told = attempt.attributes
    assert (attempt.kind, attempt.service) == (SpanKind.CONSUMER.value + 1, "jobpool")
    assert told["jobpool.outcome"] == told["error.type"] == "timed_out"
    assert (told["jobpool.signal"], told["jobpool.state"]) == ("SIGKILL", "dead")
    assert told["messaging.message.id"] == str(job.id)
    assert (told["messaging.destination.name"], told["jobpool.attempt"]) == ("cpu", 1)
    assert told["jobpool.peak_memory_bytes"] > 2**20
    assert "5s" in attempt.error
    site.supervisor.wait_event("job_ended", id=job.id)  # its span may come first
    (ended,) = site.supervisor.events("job_ended", id=job.id)
    assert ended["trace_id"] == attempt.trace_id


def test_the_attempts_of_a_job_that_was_enqueued_in_no_trace_share_one(site, receiver):
    job_id = site.add("shop.wrong")
    first, second = spans_of(receiver, "process shop.wrong", 2)
    assert first.trace_id == second.trace_id
    assert (first.parent_id, first.links) == ("", ())
    assert [one.attributes["jobpool.attempt"] for one in (first, second)] == [1, 2]
    assert first.attributes["jobpool.state"] == "pending"
    assert first.events["exception"] == {
        "exception.type": "ValueError",
        "exception.message": "no such order",
    }
    assert site.finish(job_id).state == "dead"


def test_a_handler_knows_the_header_that_names_its_span(site, receiver):
    seen = len(receiver.named("process shop.note"))
    found = site.result(site.add("shop.note"))
    *_, span = spans_of(receiver, "process shop.note", seen + 1)
    assert found == f"00-{span.trace_id}-{span.span_id}-01"


def test_the_span_of_a_lost_attempt_comes_from_who_takes_its_job_back(site, receiver):
    """With the ids that the dead one gave it, so that its own spans are below."""
    job_id = site.add("shop.hold", {"gate": "open"})
    site.wait_begun(job_id)
    (inner,) = spans_of(receiver, "hold")
    site.supervisor.kill()
    site.supervisor = site.start("cpu=2")
    lost = spans_of(receiver, "process shop.hold")[0]
    site.open_gate("open")
    assert (lost.attributes["jobpool.outcome"], lost.parent_id) == ("lost", "")
    assert (inner.parent_id, inner.trace_id) == (lost.span_id, lost.trace_id)
    assert lost.began_ns <= inner.began_ns + 1_000_000
    assert "jobpool.slot" not in lost.attributes
    assert site.finish(job_id).state == "succeeded"
    site.supervisor.wait_event("job_ended", id=job_id)
    (event,) = site.supervisor.events("job_ended", id=job_id)
    assert event["trace_id"] == lost.trace_id


def test_without_the_extra_a_start_is_refused(tmp_path):
    """It names what to install, and starts nothing."""
    (tmp_path / "jobs.py").write_text("import jobpool\njobs = jobpool.JobPool()\n")
    (tmp_path / "jobpool.toml").write_text('[traces]\notlp = "http://127.0.0.1:1"\n')
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from jobpool.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'jobpool[otel]'" in done.stderr
    assert not (tmp_path / "jobpool.db").exists()


def test_nothing_of_it_is_loaded_where_it_is_not_wanted(tmp_path):
    """Not by `import jobpool`, nor in a child."""
    app = """
@jobs.job("cpu", kind="shop.loaded")
def loaded() -> list[str]:
    return [name for name in sys.modules if name.startswith(NAMES)]
"""
    names = ("opentelemetry", "jobpool.monitoring", "google", "requests", "sentry_sdk")
    code = "import sys, jobpool; print([n for n in sys.modules if n.startswith(NAMES)])"
    done = subprocess.run(
        [sys.executable, "-c", code.replace("NAMES", repr(names))],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout == "[]\n"
    config = '[traces]\notlp = "http://127.0.0.1:1"\n'
    with Site(tmp_path, app.replace("NAMES", repr(names)), config=config) as site:
        site.start("cpu=1")
        job = site.finish(site.add("shop.loaded"))
    assert json.loads(job.result) == []
