"""What a process knows of the attempt that it runs."""

import pytest

from jobpool.core import running
from jobpool.errors import UsageError


def test_only_a_child_can_be_put_back(monkeypatch):
    """It says how; its answer is handed on."""
    monkeypatch.setattr(running._State, "restorer", None)
    with pytest.raises(UsageError, match="only a child of jobpool's"):
        running.restore()
    running.offer_restorer(lambda: (b"state", True))
    assert running.restore() == (b"state", True)


def test_completion_needs_somebody_who_knows_connections(monkeypatch):
    """The client does, once it is there."""
    monkeypatch.setattr(running._State, "completer", None)
    with pytest.raises(UsageError, match=r"needs a jobpool\.JobPool"):
        running.completer()
    client = object()
    running.offer(client)
    assert running.completer() is client


def test_what_runs_here_is_what_was_entered(monkeypatch):
    """And nothing outside of it."""
    monkeypatch.setattr(running._State, "channel", None)
    monkeypatch.setattr(running._State, "current", None)
    with pytest.raises(UsageError, match="no attempt is running"):
        running.current()
    channel, attempt = object(), object()
    running.enter(channel, attempt)
    assert (running.channel(), running.current()) == (channel, attempt)
    running.enter(None, None)
    assert running.channel() is None
