"""All that a store does with flows."""

from __future__ import annotations

from jobpool.store.operations.flows.enqueue import FlowEnqueueing
from jobpool.store.operations.flows.fold import Folding
from jobpool.store.operations.flows.reading import FlowReading
from jobpool.store.operations.flows.retry import FlowRetrying


class FlowKeeping(Folding, FlowRetrying, FlowReading, FlowEnqueueing):
    """The part of the store that keeps flows."""
