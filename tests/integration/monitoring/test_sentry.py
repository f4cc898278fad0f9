"""What Sentry is told by a real supervisor: by its own SDK, at a server on loopback."""

import subprocess
import sys

import pytest

from support.sentry import Sentry
from support.site.elsewhere import ALSO, run
from support.site.supervising import Site

CAUSE = f"00-{'a' * 32}-{'b' * 16}-01"
APP = """
import logging
from pathlib import Path

import sentry_sdk
from jobpool.integrations.sentry import connect

sentry_sdk.init("http://key@127.0.0.1:9/1", traces_sample_rate=1.0)
connect(jobs)


@jobs.job("cpu", kind="shop.ship", max_attempts=2, retry={"Exception": ["1ms"]})
def ship(order: int, how: str = "") -> None:
    sentry_sdk.set_tag("shop", "berlin")
    logging.getLogger("shop").warning("no room left")
    if how == "snooze" and not current().snoozes:
        raise Snooze(0.01)
    witness()
    if how == "itself":
        error = ValueError("seen")
        sentry_sdk.capture_exception(error)
        raise error
    if not how:
        raise ValueError(f"order {order}")


@jobs.job("cpu", kind="shop.slow", max_attempts=1, soft_timeout="200ms")
def slow() -> None:
    time.sleep(60)


@jobs.job("cpu", kind="shop.huge", max_attempts=1)
def huge() -> None:
    scope = sentry_sdk.get_current_scope()
    scope.add_attachment(bytes=b"x" * 2**21, filename="big")
    raise ValueError("huge")


@jobs.job("cpu", kind="shop.attach", max_attempts=1)
def attach() -> None:
    scope = sentry_sdk.get_current_scope()
    for filename in (Path("of/a-path"), "of-\\udcff-bytes"):
        scope.add_attachment(bytes=b'"attached"', filename=filename)
    sentry_sdk.capture_message("with attachments")


@jobs.job(
    "cpu",
    kind="shop.pay",
    max_attempts=2,
    retry={"Exception": ["1ms"]},
    redact=["card"],
)
def pay(card: str) -> None:
    print("paid with", card)
    raise ValueError(f"no card {card}")


@jobs.job("cpu", kind="shop.hang", timeout="5s", max_attempts=1)
def hang(card: str) -> None:
    time.sleep(60)


@jobs.job("cpu", kind="shop.beat")
def beat() -> None: ...


jobs.schedule("beat", beat.call(), every="1s")
"""


@pytest.fixture(scope="module")
def sentry():
    with Sentry() as sentry:
        yield sentry


@pytest.fixture(scope="module")
def site(tmp_path_factory, sentry):
    config = f'[sentry]\ndsn = "{sentry.dsn}"\nmonitors = true\n'
    with Site(tmp_path_factory.mktemp("site"), APP, config=config) as site:
        site.supervisor = site.start("cpu=2")
        yield site


def report_of(sentry, job_id):
    def is_its(event):
        return event["tags"]["jobpool.job"] == str(job_id)

    (found,) = sentry.wait_for("event", where=is_its)
    return found


def test_an_error_is_reported_when_no_retry_is_left(site, sentry):
    """Once, with the application's frames, and with nothing that the job was given."""
    job_id = site.add(
        "shop.pay", {"card": "4111"}, trace=f"00-{'a' * 32}-{'b' * 16}-01"
    )
    assert site.finish(job_id).state == "dead"
    found = report_of(sentry, job_id)
    (exception,) = found["exception"]["values"]
    assert exception["type"] == "ValueError"
    assert exception["value"].startswith("no card ")
    call = exception["stacktrace"]["frames"][-1]
    assert (call["filename"], call["function"], call["in_app"]) == (
        "jobs.py",
        "pay",
        True,
    )
    assert found["contexts"]["jobpool"]["attempt"] == 2
    assert found["contexts"]["trace"]["trace_id"] == "a" * 32
    assert "4111" not in str(found)


def test_a_death_that_no_child_can_report_is_reported(site, sentry):
    """With the stack of where it was, its signal and its memory."""
    job_id = site.add("shop.hang", {"card": "4111"})
    assert site.finish(job_id).state == "dead"
    found = report_of(sentry, job_id)
    (exception,) = found["exception"]["values"]
    assert exception["type"] == "TimedOut"
    assert exception["stacktrace"]["frames"][-1]["function"] == "hang"
    evidence = found["contexts"]["jobpool"]
    assert evidence["signal"] == "SIGKILL"
    assert evidence["peak_memory_bytes"] > 2**20
    assert "4111" not in str(found)


def of_job(job_id):
    return lambda item: item["tags"].get("jobpool.job") == str(job_id)


def test_an_applications_own_report_has_what_only_the_child_knows(site, sentry):
    """Breadcrumbs, tags, local variables; when no retry is left, and from there once.

    Its client has another DSN, which nobody answers: the supervisor sends.
    """
    job_id = site.add("shop.ship", {"order": 7}, trace=CAUSE)
    assert site.finish(job_id).state == "dead"
    (found,) = sentry.wait_for("event", where=of_job(job_id))
    assert found["tags"]["jobpool.attempt"] == "2"
    assert found["tags"]["shop"] == "berlin"
    (exception,) = found["exception"]["values"]
    call = exception["stacktrace"]["frames"][-1]
    assert (call["function"], call["vars"]["order"]) == ("ship", "7")
    assert exception["mechanism"]["type"] == "jobpool"
    ours = [one for one in exception["stacktrace"]["frames"] if not one["in_app"]]
    assert {one["module"].partition(".")[0] for one in ours} <= {
        "jobpool",
        "contextlib",
    }
    messages = [one["message"] for one in found["breadcrumbs"]["values"]]
    assert messages == ["no room left"]
    assert found["contexts"]["trace"]["trace_id"] == "a" * 32
    spans = sentry.wait_for("transaction", 2, where=of_job(job_id))
    assert [one["contexts"]["trace"]["trace_id"] for one in spans] == ["a" * 32] * 2
    assert [one["contexts"]["trace"]["parent_span_id"] for one in spans] == [
        "b" * 16
    ] * 2
    assert spans[0]["contexts"]["trace"]["op"] == "queue.process"


def test_a_snooze_is_no_error(site, sentry):
    job_id = site.add("shop.ship", {"order": 8, "how": "snooze"})
    assert site.finish(job_id).state == "succeeded"
    spans = sentry.wait_for("transaction", 2, where=of_job(job_id))
    assert {one["contexts"]["trace"]["status"] for one in spans} == {"ok"}
    assert not list(filter(of_job(job_id), sentry.of("event")))


def test_what_the_handler_has_reported_itself_is_not_reported_again(site, sentry):
    """As from its first attempt, so from its last one: by the handler alone."""
    job_id = site.add("shop.ship", {"order": 9, "how": "itself"})
    assert site.finish(job_id).state == "dead"
    sentry.wait_for("transaction", 2, where=of_job(job_id))
    events = sentry.wait_for("event", 2, where=of_job(job_id))
    attempts = [one["tags"]["jobpool.attempt"] for one in events]
    assert attempts == ["1", "2"]


def test_children_go_on_after_they_have_reported(site, sentry):
    """Nothing of Sentry's client is left running that would have them replaced."""
    job_ids = [site.add("shop.ship", {"order": n}) for n in range(4)]
    site.finish_all(job_ids)
    pids = {line.pid for line in site.witnesses() if line.job in job_ids}
    assert len(pids) <= 2
    assert not [
        one
        for one in site.supervisor.events("job_output")
        if "jobpool:" in one["line"] and one["id"] in job_ids
    ]


def test_soft_limits_are_one_issue_of_their_kind(site, sentry):
    job_id = site.add("shop.slow")
    assert site.finish(job_id).state == "dead"
    (found,) = sentry.wait_for("event", where=of_job(job_id))
    assert found["fingerprint"] == ["jobpool", "shop.slow", "SoftTimeout"]
    assert found["contexts"]["jobpool"]["see"] == f"jobpool show {job_id}"


def test_no_attachment_ends_an_attempt_whatever_its_name(site, sentry):
    """One of a path, which is no text, and one whose name is in no encoding."""
    assert site.finish(site.add("shop.attach")).state == "succeeded"
    assert sentry.wait_for("attachment", 2) == ["attached"] * 2


def test_a_report_that_is_too_large_is_left_out_and_said_so(site, sentry):
    """The supervisor's own comes instead."""
    job_id = site.add("shop.huge")
    assert site.finish(job_id).state == "dead"
    (found,) = sentry.wait_for("event", where=of_job(job_id))
    assert found["contexts"]["jobpool"]["attempt"] == 1
    output = site.attempts(job_id)[0].output
    assert "was left out" in output


PROGRAM = """
import sentry_sdk, jobs
print(sentry_sdk.get_traceparent().partition("-")[0], jobs.ship.enqueue(1, "well").id)
with sentry_sdk.start_transaction(name="POST /orders") as request:
    job = jobs.ship.enqueue(1, "well")
    (span,) = [
        one for one in request._span_recorder.spans if one.op == "queue.publish"
    ]
    print(request.trace_id, span.span_id, job.id)
"""


@pytest.fixture(scope="module")
def enqueued(site):
    """What a program has printed that imports the application and enqueues."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=site.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split() for line in done.stdout.splitlines()]


def test_a_job_is_below_the_span_that_has_enqueued_it(enqueued, sentry):
    """Of Sentry, without OpenTelemetry; and says how long it has waited, and where."""
    trace_id, span_id, job_id = enqueued[1]
    (span,) = sentry.wait_for("transaction", where=of_job(job_id))
    context = span["contexts"]["trace"]
    assert (context["trace_id"], context["parent_span_id"]) == (trace_id, span_id)
    data = context["data"]
    assert data["messaging.message.id"] == job_id
    assert data["messaging.destination.name"] == "cpu"
    assert data["messaging.message.body.size"] == len('{"order":1,"how":"well"}')
    assert data["messaging.message.retry.count"] == 0
    assert data["messaging.message.receive.latency"] > 0


def test_who_enqueues_beside_any_request_leaves_open_what_is_recorded(enqueued, sentry):
    trace_id, job_id = enqueued[0]
    (span,) = sentry.wait_for("transaction", where=of_job(job_id))
    assert span["contexts"]["trace"]["trace_id"] == trace_id


def test_without_a_supervisor_that_sends_the_applications_client_does(tmp_path, sentry):
    """Before the attempt has ended, since its child is replaced for the thread.

    For that alone: not after attempts that have nothing to report.
    """
    app = APP.replace("http://key@127.0.0.1:9/1", sentry.dsn)
    with Site(tmp_path, app.replace("rate=1.0", "rate=0")) as other:
        other.start("cpu=1")
        well = [other.add("shop.ship", {"order": 1, "how": "well"}) for _ in range(2)]
        other.finish_all(well)
        assert len({line.pid for line in other.witnesses()}) == 1
        job_id = other.add("shop.ship", {"order": 70})
        assert other.finish(job_id).state == "dead"

        def is_its(event):  # a job of the other site may have the same number
            return of_job(job_id)(event) and "order 70" in str(event.get("exception"))

        (found,) = sentry.wait_for("event", where=is_its)
    assert found["tags"]["jobpool.attempt"] == "2"


def test_under_jobpool_dev_reports_are_those_of_a_development(tmp_path):
    """Not of production, where somebody would be called. Also where there is no Linux.

    What the application's own client has made is sent as it has made it.
    """
    with Sentry() as own:
        config = f'[sentry]\ndsn = "{own.dsn}"\n'
        with Site(tmp_path, APP, config=config) as here:
            here.add("shop.pay", {"card": "4111"})
            here.add("shop.ship", {"order": 7})
            words, env = ("jobpool", "dev", "--burst"), {ALSO: "urllib.request"}
            done = run("macos", "-m", *words, cwd=here.folder, env=env)
        assert done.returncode == 0, done.stderr
    ours, its = sorted(own.of("event"), key=lambda one: one["transaction"])
    assert (ours["transaction"], ours["environment"]) == ("shop.pay", "development")
    assert "4111" not in str(ours)
    assert its["breadcrumbs"]["values"][0]["message"] == "no room left"


def test_ticks_are_check_ins(site, sentry):
    """One when the job begins, which another one completes."""
    (good, *_) = sentry.wait_for("check_in", where=lambda one: one["status"] == "ok")
    begun = [
        one
        for one in sentry.of("check_in")
        if one["check_in_id"] == good["check_in_id"] and one["status"] == "in_progress"
    ]
    assert len(begun) == 1
    assert good["monitor_slug"] == "beat"
    assert good["duration"] >= 0.0


def test_jobs_go_on_while_sentry_is_away(site, sentry):
    """The log says what was lost."""
    sentry.status = 503
    job_ids = [site.add("shop.pay", {"card": "1"}) for _ in range(3)]
    assert {job.state for job in site.finish_all(job_ids)} == {"dead"}
    # A busy machine may have lost others before, for another reason.
    why = "Sentry has not taken them: status_503"
    site.supervisor.wait_event("reports_dropped", reason=why)
    sentry.status = 200
    job_id = site.add("shop.pay", {"card": "1"})
    assert report_of(sentry, job_id)["transaction"] == "shop.pay"
