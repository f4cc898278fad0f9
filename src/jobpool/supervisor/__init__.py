"""The parent: leases, starts, watches, settles. Runs no user code."""

from jobpool.supervisor.processes.inspect_app import inspect_app
from jobpool.supervisor.serve import serve

__all__ = ["inspect_app", "serve"]
