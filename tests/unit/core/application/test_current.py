"""What a process knows about the attempt that it runs."""

import pytest

from jobpool.core.application import current
from jobpool.errors import UsageError


def test_only_a_child_can_be_reset(monkeypatch):
    """The child sets how; its answer is passed on."""
    monkeypatch.setattr(current._State, "restorer", None)
    with pytest.raises(UsageError, match="only one of jobpool's children"):
        current.restore()
    current.set_restorer(lambda: (b"state", True))
    assert current.restore() == (b"state", True)


def test_completion_needs_a_client(monkeypatch):
    """The client provides it once it is created."""
    monkeypatch.setattr(current._State, "completer", None)
    with pytest.raises(UsageError, match=r"needs a jobpool\.JobPool"):
        current.completer()
    client = object()
    current.set_completer(client)
    assert current.completer() is client


def test_the_current_attempt_is_the_one_that_was_entered(monkeypatch):
    """And nothing outside of it."""
    monkeypatch.setattr(current._State, "channel", None)
    monkeypatch.setattr(current._State, "current", None)
    with pytest.raises(UsageError, match="no attempt is running"):
        current.current()
    channel, attempt = object(), object()
    current.enter(channel, attempt)
    assert (current.channel(), current.current()) == (channel, attempt)
    current.enter(None, None)
    assert current.channel() is None
