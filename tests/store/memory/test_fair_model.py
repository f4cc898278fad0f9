"""Fair and aged pools of the store in memory against the plain model."""

from pathlib import Path

from jobpool.core.rules.admission import Admission
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from support.store.fair_machine import FairMachine
from support.store.hypothesis_machine import depth


class MemoryFairMachine(FairMachine):
    """The model beside a store in memory."""

    def make_store(self):
        database = MemoryDatabase("model")
        return lambda: MemoryStore(
            database,
            clock=self.clock,
            admission=Admission(depth_max=10**6),
            run_root=Path("/nonexistent"),
        )


TestMemoryShares = MemoryFairMachine.TestCase
TestMemoryShares.settings = depth(40, 25)
