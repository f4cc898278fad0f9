"""Who runs, and how anybody else can tell: the names that the supervisor needs."""

from jobpool.sandbox.procfs import boot_id, pid_namespace, process_start_time
from jobpool.sandbox.proof import Alive, DeadRun, Proof, Unproven, prove_dead
from jobpool.sandbox.rundirectory import RunDirectory, remove_run

__all__ = [
    "Alive",
    "DeadRun",
    "Proof",
    "RunDirectory",
    "Unproven",
    "boot_id",
    "pid_namespace",
    "process_start_time",
    "prove_dead",
    "remove_run",
]
