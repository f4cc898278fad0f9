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
