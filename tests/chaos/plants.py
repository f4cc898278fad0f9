"""Bugs to plant: each breaks one promise that the chaos check must see broken.

A plant names the places in jobpool's source and what stands there instead. A text that
is not there exactly once is an error: a plant must not fade while the source moves on.
"""

from typing import NamedTuple

from planted_bugs.bug import Edit, Promise


class Plant(NamedTuple):
    """A bug."""

    name: str
    promise: Promise
    breaks: frozenset[str]
    """Rules of which at least one must be seen broken."""
    edits: tuple[Edit, ...]
    outage_s: float = 0.0
    """The store is away for so long before the storm."""


PLANTS = (
    Plant(
        "a living run is taken for dead",
        Promise.NO_OVERLAP,
        frozenset(("I6", "I7")),
        (
            Edit(
                "supervisor/maintenance/death_proof.py",
                "        os.close(lock)\n        return Alive()",
                "        os.close(lock)\n        return DeadRun()",
            ),
        ),
    ),
    Plant(
        "children outlive their supervisor, and nobody ends them",
        Promise.NO_OVERLAP,
        frozenset(("I6",)),
        (
            Edit(
                "sandbox/zygote/zygote.py",
                "            kill_tree(pid, pidfd)\n\n\ndef",
                "            os.stat(0)\n\n\ndef",
            ),
            Edit(
                "supervisor/maintenance/death_proof.py",
                "    for pid, start_time in read_slots(path):\n        if is_alive",
                "    for pid, start_time in ():\n        if is_alive",
            ),
            Edit(
                "supervisor/maintenance/death_proof.py",
                '    for name in os.listdir("/proc"):',
                "    for name in ():",
            ),
            Edit(
                "supervisor/maintenance/death_proof.py",
                "    group = read_group(read_cgroup(path), header.run_id)\n",
                "    group = None\n",
            ),
        ),
    ),
    Plant(
        "what was lost is handed back free of charge",
        Promise.BOUNDED_PATHS,
        frozenset(("I7",)),
        (
            Edit(
                "supervisor/maintenance/lost_jobs.py",
                "        if one.token in running\n        else hand_back(one)",
                "        if one.token in running and not registry\n"
                "        else hand_back(one)",
            ),
        ),
    ),
    Plant(
        "crashes are counted as failures only",
        Promise.BOUNDED_PATHS,
        frozenset(("I7", "I8")),
        (
            Edit(
                "core/jobs/outcome.py",
                "Outcome.CRASHED: Charge(failure=True, crash=True, end_unknown=True)",
                "Outcome.CRASHED: Charge(failure=True, end_unknown=True)",
            ),
        ),
    ),
    Plant(
        "an exit with 0 is a success",
        Promise.NAMED_ENDS,
        frozenset(("I5",)),
        (
            Edit(
                "sandbox/protocol/verdict.py",
                "    if exited.signal is None:\n        how",
                "    if exited.exit_code == 0:\n"
                '        return Outcome.SUCCEEDED, ""\n'
                "    if exited.signal is None:\n        how",
            ),
        ),
    ),
    Plant(
        "one commit in a hundred is none",
        Promise.DURABLE,
        frozenset(("I1", "I4", "I5", "I6")),
        (
            Edit(
                "store/sqlite/connection/database.py",
                "        commit(session)\n",
                '        session.run("rollback") if time.time_ns() % 100 == 0 '
                "else commit(session)\n",
            ),
            Edit(
                "store/sqlite/connection/database.py",
                "import sqlite3\n",
                "import sqlite3\nimport time\n",
            ),
        ),
    ),
    Plant(
        "tokens are given again",
        Promise.FENCED,
        frozenset(("I4",)),
        (
            Edit(
                "store/sqlite/sql/lease.sql",
                "SET value = value + :leases\nWHERE name = 'tokens'",
                "SET value = value + :leases % 2\nWHERE name = 'tokens'",
            ),
            Edit(
                "store/sqlite/tokens.py",
                "        number << TOKEN_BITS | word >> (32 - TOKEN_BITS)\n",
                "        number << TOKEN_BITS\n",
            ),
        ),
    ),
    Plant(
        "durations go by the wall clock",
        Promise.INNOCENCE,
        frozenset(("I7",)),
        (
            Edit("core/clock.py", "        return time.monotonic()",
                 "        return self.utc_ms() / 1000"),
        ),
    ),
    Plant(
        "run directories stay",
        Promise.BOUNDED_DATA,
        frozenset(("I12",)),
        (
            Edit(
                "sandbox/runs/run_directory.py",
                "        remove_tree(self.path)\n        remove_tree(self.tmp_root)\n"
                "        self.close()",
                "        self.close()",
            ),
        ),
    ),
    Plant(
        "ends are dropped when the store is in trouble",
        Promise.FENCED,
        frozenset(("I9",)),
        (
            Edit(
                "supervisor/storage/thread.py",
                "        if isinstance(error, OutcomeUnknown):\n"
                "            self._outbox.doubt(due)",
                "        self._outbox._forget(due)",
            ),
        ),
        outage_s=13.0,  # longer than anybody waits for a lock
    ),
    Plant(
        "a waiting job is not canceled, and said to be",
        Promise.BOUNDED_PATHS,
        frozenset(("I15",)),
        (
            Edit(
                "store/sqlite/sql/read.sql",
                "  state = 'canceled',\n  finished_at_ms = :now_ms,\n",
                "",
            ),
        ),
    ),
    Plant(
        "at most once is forgotten",
        Promise.AT_MOST_ONCE,
        frozenset(("I7",)),
        (
            Edit(
                "core/rules/lifecycle.py",
                "    if policy.rerun is Rerun.NEVER and charge.end_unknown:",
                "    if charge.crash and charge.recovery:",
            ),
        ),
    ),
    Plant(
        "failures are not written down",
        Promise.BOUNDED_PATHS,
        frozenset(("I7",)),
        (
            Edit(
                "store/sqlite/sql/settle.sql",
                "min(CAST(failures AS INTEGER) + ended.failure, 2147483647)",
                "min(CAST(failures AS INTEGER), 2147483647)",
            ),
        ),
    ),
    Plant(
        "failures have no end",
        Promise.BOUNDED_PATHS,
        frozenset(("I7",)),
        (
            Edit(
                "core/rules/lifecycle.py",
                "    if failure is not None and failure.is_used_up:\n",
                "    if failure is not None and failure.count >= 100 * failure.of:\n",
            ),
        ),
    ),
    Plant(
        "a hog may take what it gets",
        Promise.HARD_LIMITS,
        frozenset(("I7",)),
        (
            Edit(
                "supervisor/processes/memory_watch.py",
                "            if confirmed > limit_bytes:\n"
                "                watched.reported",
                "            if confirmed > 100 * limit_bytes:\n"
                "                watched.reported",
            ),
        ),
    ),
    Plant(
        "a child that somebody has killed was stopped by us",
        Promise.INNOCENCE,
        frozenset(("I7",)),
        (
            Edit(
                "sandbox/protocol/verdict.py",
                "    if stopping:\n        return",
                "    if exited.signal == signal.SIGKILL:\n        return",
            ),
        ),
    ),
    Plant(
        "a step ends before its last member",
        Promise.FLOWS,
        frozenset(("I28",)),
        (
            Edit(
                "core/rules/flows.py",
                "    if is_unfinished:\n        return None\n    if state is ",
                "    if is_unfinished and state is not StepState.READY:\n"
                "        return None\n    if state is ",
            ),
        ),
    ),
    Plant(
        "the first job that a member adds is lost",
        Promise.FLOWS,
        frozenset(("I28",)),
        (
            Edit(
                "store/operations/flows/adding.py",
                "            for job in adder.added\n        )",
                "            for job in adder.added[1:]\n        )",
            ),
        ),
    ),
)  # fmt: skip
