"""All that the store does with flows, but for reading."""

from __future__ import annotations

from jobpool.store.memory.flows.enqueue import FlowEnqueueing
from jobpool.store.memory.flows.fold import Folding
from jobpool.store.memory.flows.retry import FlowRetrying


class FlowKeeping(FlowEnqueueing, Folding, FlowRetrying):
    """The part of the store that keeps flows."""
