"""Jobs in another pool than their kind's own: ``options(pool=)`` makes them.

Theory of operation. A supervisor asks the store for the kinds of each pool, and would
ask for all kinds in all pools if any job could be in any of them: a step of an index
for each, with every lease. So it asks for the kinds that are at home in a pool, and
looks once a second in which pools there are jobs of which kinds. A pair that it has
found it leases from then on, after it has published the kind, with what that needs of
quotas, in case no supervisor runs its own pool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jobpool.store.protocol import Store
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.storage.inbox import Posts
from jobpool.supervisor.storage.thread import StoreThread

LOOK_EVERY_S = 1.0


class OtherPools:
    """Finds the pairs of pool and kind that are leased besides the declared ones.

    Args:
        thread: the store thread, which leases them.
    """

    def __init__(self, thread: StoreThread) -> None:
        self._thread = thread
        self._registry: Registry | None = None
        self._publish: Callable[[Store], object] | None = None
        self._found: set[tuple[str, str]] = set()

    def serve(self, registry: Registry, publish: Callable[[Store], object]) -> None:
        """Look for the kinds of an application from now on.

        Args:
            registry: its kinds.
            publish: publishes them, with `elsewhere`.
        """
        self._registry, self._publish = registry, publish

    @property
    def elsewhere(self) -> Mapping[str, str]:
        """Kinds of which there were jobs in another pool, and one of those pools."""
        registry = self._registry
        return {
            kind: pool
            for pool, kind in sorted(self._found)
            if registry and kind in registry.names and pool in registry.kinds
        }

    def look(self, store: Store) -> Posts:
        """Lease what is found from now on; a chore."""
        registry = self._registry
        if registry is None or self._publish is None:
            return ()
        new = {
            (pool, kind)
            for pool, kind in store.runnable_kinds(registry.kinds.keys())
            if kind in registry.names and kind not in registry.kinds[pool]
        } - self._found
        self._found |= new
        if new:
            self._publish(store)
        kinds = {pool: set(names) for pool, names in registry.kinds.items()}
        for pool, kind in self._found:
            if kind in registry.names and pool in kinds:
                kinds[pool].add(kind)
        self._thread.kinds = {pool: sorted(names) for pool, names in kinds.items()}
        return (inp.Notified(),) if new else ()
