"""What running attempts take and return of quotas, as it piles up for one commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobpool.core.jobs.job import PermitAnswer, PermitAsk, PermitReturn, Throttle
from jobpool.store.protocol import Store
from jobpool.supervisor.machine import commands as cmd


@dataclass(slots=True)
class PermitBatch:
    """What is to be done about permits, in order: blocks, returns, then requests."""

    asks: list[PermitAsk] = field(default_factory=list)
    returns: list[PermitReturn] = field(default_factory=list)
    blocks: dict[tuple[str, str], int] = field(default_factory=dict)
    """The longest block of each bucket, in milliseconds."""

    def __bool__(self) -> bool:
        return bool(self.asks or self.returns or self.blocks)

    def take(
        self, command: cmd.TakePermits | cmd.ReturnPermits | cmd.BlockBuckets
    ) -> None:
        """Add a command."""
        match command:
            case cmd.TakePermits():
                self.asks += command.asks
            case cmd.ReturnPermits():
                self.returns += command.returns
            case cmd.BlockBuckets():
                for block in command.blocks:
                    self.block(block)

    def block(self, throttle: Throttle) -> None:
        """Add a block; of one bucket the longest counts."""
        bucket = throttle.quota, throttle.value
        self.blocks[bucket] = max(throttle.after_ms, self.blocks.get(bucket, 0))

    def keep(self, failed: PermitBatch) -> None:
        """Do again what could not be written; its requests were answered."""
        self.returns[:0] = failed.returns
        for (quota, value), after_ms in failed.blocks.items():
            self.block(Throttle(quota, value, after_ms))

    def write(self, store: Store, run_id: str) -> list[PermitAnswer]:
        """Write all of it in one transaction, and return the answers to the requests.

        It has a transaction of its own: it waits for buckets that others hold, and so
        does a claim. Each takes them in one order; both together would not, and two
        supervisors could wait for each other.

        Raises:
            StoreError: nothing is known to be written.
        """
        with store.transaction():
            if self.blocks:
                store.block_buckets(
                    [Throttle(*bucket, ms) for bucket, ms in self.blocks.items()]
                )
            if self.returns:
                store.return_permits(self.returns)
            return store.take_permits(run_id, self.asks) if self.asks else []
