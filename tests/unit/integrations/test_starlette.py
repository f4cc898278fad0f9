"""Errors and progress of jobs, as HTTP has them. Servers are in the manual's page."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from jobpool import JobNotFound, JobPool, QueueFull, StoreUnavailable
from jobpool.integrations import starlette


def answered(error):
    """Return what an endpoint that raises is answered with."""

    async def endpoint(_request):
        raise error

    app = Starlette(routes=[Route("/", endpoint)])
    starlette.answer_errors(app)
    return TestClient(app, raise_server_exceptions=False).get("/")


@pytest.mark.parametrize(
    ("error", "status", "after"),
    [
        (QueueFull("kind secret is full", retry_after_s=12.4), 429, "12"),
        (StoreUnavailable("/srv/secret.db is locked"), 503, "5"),
        (JobNotFound("no job in /srv/secret.db"), 404, None),
    ],
)
def test_errors_are_answered_without_what_they_say(error, status, after):
    """What they say is for whoever runs the application."""
    answer = answered(error)
    assert answer.status_code == status
    assert answer.headers.get("retry-after") == after
    assert "secret" not in answer.text
    assert answer.json()["detail"]


def test_other_errors_are_the_applications(recwarn):
    assert answered(ZeroDivisionError()).status_code == 500


@pytest.fixture
def job(tmp_path):
    jobs = JobPool(f"sqlite:///{tmp_path}/jobpool.db")
    yield jobs.job("cpu", kind="k")(lambda: None).enqueue()
    jobs.close()


def test_events_end_with_the_job(job):
    """The first comes at once, one for each change; the last has a name."""

    async def collect():
        found = []
        async for event in starlette.progress(job, every=0.01).body_iterator:
            found.append(event)
            if len(found) == 1:
                await asyncio.sleep(0.1)  # nothing has changed meanwhile
                job.cancel()
        return found

    assert asyncio.run(collect()) == [
        b'data: {"state":"runnable","progress":null}\n\n',
        b'event: end\ndata: {"state":"canceled","progress":null}\n\n',
    ]


def test_a_lifespan_runs_within_the_supervisors(monkeypatch):
    """The application's own begins after it and ends before it; its state is kept."""
    order = []

    class Fake:
        def __init__(self, *flags, **options):
            order.append((flags, options["app"]))

        def start(self):
            order.append("started")

        def stop(self):
            order.append("stopped")

    @starlette.asynccontextmanager
    async def own(_app):
        order.append("own begins")
        yield {"answer": 42}
        order.append("own ends")

    monkeypatch.setattr(starlette, "Beside", Fake)
    running = starlette.lifespan("--pools", "cpu=2", app="shop", within=own)
    app = Starlette(
        routes=[
            Route("/", lambda request: PlainTextResponse(str(request.state.answer)))
        ],
        lifespan=running,
    )
    with TestClient(app) as client:
        assert client.get("/").text == "42"
    assert order == [
        (("--pools", "cpu=2"), "shop"),
        *("started", "own begins", "own ends", "stopped"),
    ]
