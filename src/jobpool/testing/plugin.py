"""Fixtures of pytest, which finds them by itself: `jobpool_queue`, `jobpool_inline`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jobpool.testing.queue import Queue


@pytest.fixture
def jobpool_queue() -> Iterator[Queue]:
    """A queue in memory, in virtual time; its jobs run when the test says so."""
    from jobpool.testing.queue import Queue  # noqa: PLC0415 - not for every test run

    with Queue() as queue:
        yield queue


@pytest.fixture
def jobpool_inline() -> Iterator[Queue]:
    """A queue whose jobs run within ``enqueue``, which raises what they raise."""
    from jobpool.testing.queue import Queue  # noqa: PLC0415 - not for every test run

    with Queue(inline=True) as queue:
        yield queue
