"""Durable truth: jobs, attempts, leases. Knows databases and no process."""

from jobpool.store.base import Store
from jobpool.store.opening import guest_store, open_store, run_root

__all__ = ["Store", "guest_store", "open_store", "run_root"]
