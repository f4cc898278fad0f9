"""Metrics are served at an address; one that is taken is waited for."""

import errno
import os
import socket
import struct
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from jobpool.core.config.settings import Address
from jobpool.monitoring.metrics import listen
from jobpool.monitoring.metrics.attempts import AttemptMetrics
from jobpool.monitoring.metrics.listen import Listener
from support.waiting import wait_until

DEADLINE_S = 30


def get(port, path="/metrics"):
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_S
    ) as answer:
        return answer.read().decode()


@pytest.fixture
def listener():
    refused = []
    place = Address("127.0.0.1", 0)
    with Listener(place, (AttemptMetrics(),), refused=refused.append) as one:
        assert one.listening.wait(DEADLINE_S)
        yield one
    assert refused == []


def test_a_scrape_has_ours_and_the_process_s(listener):
    said = get(listener.port)
    assert "# TYPE jobpool_attempts_total counter" in said
    assert "process_resident_memory_bytes" in said


def test_other_paths_say_where_they_are(listener):
    assert "/metrics" in get(listener.port, "/")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(listener.port, "/secrets")


def test_a_client_that_says_nothing_keeps_nobody_waiting(listener):
    with socket.create_connection(("127.0.0.1", listener.port), DEADLINE_S):
        assert "jobpool" in get(listener.port)


@pytest.mark.parametrize(
    "junk",
    [b"\x00\xff\n\n", b"GET " + b"x" * 70_000, b"POST /metrics HTTP/9.9\r\n\r\n"],
)
def test_junk_ends_its_own_request_alone(listener, junk):
    with socket.create_connection(("127.0.0.1", listener.port), DEADLINE_S) as client:
        client.sendall(junk)
        client.shutdown(socket.SHUT_WR)
    assert "jobpool" in get(listener.port)


@pytest.mark.parametrize("how", ["silent", "reset"])
def test_a_client_that_goes_or_is_silent_is_no_error(listener, how, monkeypatch, capfd):
    """What a supervisor writes on stderr is its log, which programs read."""
    before = set(threading.enumerate())

    def has_no_request():
        begun = set(threading.enumerate()) - before
        return not any("process_request" in thread.name for thread in begun)

    if how == "silent":
        monkeypatch.setattr(listen._Handler, "timeout", 0.05)
    with socket.create_connection(("127.0.0.1", listener.port), DEADLINE_S) as client:
        client.sendall(b"GET /met")
        if how == "silent":
            assert client.recv(1) == b""
        else:
            now = struct.pack("ii", 1, 0)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
    monkeypatch.undo()  # we may be as slow ourselves, on a busy machine
    assert "jobpool" in get(listener.port)
    wait_until(has_no_request, DEADLINE_S, "its thread has ended")
    assert capfd.readouterr().err == ""


def test_without_a_free_descriptor_it_waits_for_one(listener, monkeypatch):
    """The connection is offered again at once: the thread would never rest."""

    def refuse(_server):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    slept = []
    with listener._bound() as server, socket.socket() as client:
        monkeypatch.setattr(listen.WSGIServer, "get_request", refuse)
        # Not `time.sleep` itself: threads that others have left use that.
        monkeypatch.setattr(listen, "time", SimpleNamespace(sleep=slept.append))
        client.connect(server.server_address)
        server.handle_request()
    assert slept == [listen._REFUSED_S]


def test_it_ends_when_it_is_told_to_and_not_when_it_looks_again(monkeypatch):
    """A supervisor's end does not wait for the next look at whether to end."""
    monkeypatch.setattr(listen._Server, "timeout", 3600.0)
    monkeypatch.setattr(listen, "_CLOSE_S", float(DEADLINE_S))
    with Listener(Address("127.0.0.1", 0), (), refused=pytest.fail) as one:
        assert one.listening.wait(DEADLINE_S)
    assert not one._thread.is_alive()


def test_an_address_that_is_taken_is_told_once_and_had_when_it_is_free(monkeypatch):
    """A supervisor starts beside the old one, which still drains."""
    monkeypatch.setattr("jobpool.monitoring.metrics.listen.AGAIN_S", 0.01)
    refused = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listener = Listener(
            Address("127.0.0.1", port), (AttemptMetrics(),), refused=refused.append
        )
        with listener:
            wait_until(lambda: refused, DEADLINE_S, "it has tried, and says so")
            assert not listener.listening.wait(0.2)
            taken.close()
            assert listener.listening.wait(DEADLINE_S)
            assert "jobpool" in get(port)
    assert len(refused) == 1
    assert f"127.0.0.1:{port}" in refused[0]
