"""Fixtures that several tests of real processes share."""

import uuid

import pytest

from support.machine.executing import MARKER


@pytest.fixture
def marker(monkeypatch):
    """Mark all processes that are started from here on."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(MARKER, value)
    return value
