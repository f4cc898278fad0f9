"""Quotas of the store in memory against the plain model."""

from pathlib import Path

from jobpool.core.rules.admission import Admission
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from support.store.hypothesis_machine import depth
from support.store.quota_machine import QuotaMachine


class MemoryQuotaMachine(QuotaMachine):
    """The model beside a store in memory."""

    def make_store(self):
        database = MemoryDatabase("model")
        return lambda: MemoryStore(
            database,
            clock=self.clock,
            admission=Admission(depth_max=10**6),
            run_root=Path("/nonexistent"),
        )


TestMemoryQuotas = MemoryQuotaMachine.TestCase
TestMemoryQuotas.settings = depth(80, 50)
