"""Connections: how many there may be, and how long one may be silent."""

import asyncio
import resource
import socket

import pytest
import uvicorn
from starlette.responses import PlainTextResponse, StreamingResponse
from uvicorn.server import ServerState

from jobpool.dashboard import asked, serving
from support.browsing import HOST, OURS

PATIENCE_S = 20.0
ASKS = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"


async def slowly():
    for part in ("one", "two", "three"):
        yield part
        await asyncio.sleep(0.1)


async def app(scope, receive, send):
    is_slow = scope["path"] == "/slow"
    answer = StreamingResponse(slowly()) if is_slow else PlainTextResponse("here")
    await answer(scope, receive, send)


def heard(*said):
    """Return what each connection hears until it is closed; all are opened at first.

    They have said their words before they are accepted: we are silent no longer than
    we should be, also on a busy machine.
    """

    async def talk():
        config = uvicorn.Config(app, log_config=None, timeout_keep_alive=60)
        state, loop = ServerState(), asyncio.get_running_loop()
        listening = socket.create_server(("127.0.0.1", 0))
        plugs = [socket.create_connection(listening.getsockname()) for _ in said]
        for plug, words in zip(plugs, said, strict=True):
            plug.sendall(words)
        ends = [await asyncio.open_connection(sock=plug) for plug in plugs]
        server = await loop.create_server(
            lambda: serving.Connection(config, state, {}, loop), sock=listening
        )
        found = []
        for reader, writer in ends:
            try:
                found.append(await asyncio.wait_for(reader.read(), PATIENCE_S))
            except ConnectionError:
                found.append(b"")
            writer.close()
        server.close()
        return found

    return asyncio.run(talk())


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"", b""),
        (b"GET / HT", b""),
        (ASKS % b"/" + b"GET / HT", b"here"),
        (ASKS % b"/slow", b"three"),
    ],
)
def test_a_connection_that_is_silent_is_closed(monkeypatch, said, answer):
    """Not before it has its answer, however long that takes."""
    monkeypatch.setattr(serving, "_SILENT_S", 0.05)
    (found,) = heard(said)
    assert answer in found


def test_connections_leave_descriptors_for_the_store(monkeypatch):
    """One too many is closed at once."""
    monkeypatch.setattr(serving, "_SILENT_S", 0.5)
    monkeypatch.setattr(serving, "_CONNECTIONS_MIN", 2)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (serving._RESERVED + 2, 0))
    found = heard(*[ASKS % b"/"] * 4)
    assert [b"here" in one for one in found] == [True, True, False, False]


def test_a_form_that_does_not_come_whole_is_not_waited_for(browser, monkeypatch):
    """Also by who is not known: to enter takes a form."""
    monkeypatch.setattr(asked, "_FORM_S", 0.05)
    told = []

    async def receive():
        await asyncio.sleep(PATIENCE_S)

    async def send(message):
        told.append(message)

    names = {"host": HOST, **{name.lower(): text for name, text in OURS.items()}}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/enter",
        "query_string": b"",
        "headers": [(name.encode(), text.encode()) for name, text in names.items()],
    }
    asyncio.run(browser.dashboard(scope, receive, send))
    assert told[0]["status"] == 400
    assert b"did not come whole within" in told[1]["body"]
