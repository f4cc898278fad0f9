"""A small supervisor for tests of the sandbox: one zygote, some children."""

import json
import os
import select
import time
import uuid
from functools import cache
from multiprocessing import resource_tracker
from pathlib import Path
from typing import ClassVar

from jobpool.core.config.settings import PoolSettings, SandboxLevel
from jobpool.core.isolation.measures import plan
from jobpool.core.rules.limits import PoolLimits
from jobpool.sandbox.confinement.features import lacking
from jobpool.sandbox.handles.child import ChildProcess
from jobpool.sandbox.handles.zygote import Zygote
from jobpool.sandbox.protocol.messages import Done, Forked, Go, Loaded, Ready, RunJob
from jobpool.sandbox.system.process_tree import sweep_orphans
from jobpool.sandbox.system.procfs import process_start_time
from support.waiting import wait_until

APPS = str(Path(__file__).parents[2] / "integration" / "apps")
PATIENCE_S = 60.0


def pool_of(**options):
    """Return a pool with these options."""
    return PoolSettings(
        name="cpu",
        size_min=1,
        size_max=1,
        limits=PoolLimits(timeout_s=60, memory_bytes=2**30),
        **options,
    )


@cache
def missing():
    """Return what this machine lacks; that does not change meanwhile."""
    return lacking()


def lockdown_of(**options):
    """Return what children of a pool with these options do to themselves here."""
    return plan(pool_of(**options), missing())[0]


LEVEL = SandboxLevel(os.environ.get("JOBPOOL_TEST_SANDBOX", "standard"))
"""Of children whose test does not say: every test can be run at every level."""
LOCKDOWN = lockdown_of(sandbox=LEVEL)


class Rig:
    """Starts children as the supervisor does, and waits for their messages."""

    open_zygotes: ClassVar[set[int]] = set()

    def __init__(self, directory, app="hostile", *, preload=True, env=None, where=APPS):
        self.directory = Path(directory)
        self.run_id = uuid.uuid4().hex
        # A test may use it later. As any process that is younger than the zygote, it
        # would be swept in the end, and whatever used it next would fail.
        resource_tracker.ensure_running()
        self.zygote = Zygote.start(
            "cpu", self.run_id, app=app, directory=where, preload=preload, env=env
        )
        self.open_zygotes.add(self.zygote.pid)
        self.children = []
        self.seq = 0

    def loaded(self):
        """Wait for what the zygote says first."""
        return self.from_zygote()[0]

    def from_zygote(self):
        """Wait for messages of the zygote."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            select.select([self.zygote], [], [], 1)
            if messages := self.zygote.receive():
                return messages
            if messages is None:
                return [None]
        raise AssertionError("the zygote says nothing")

    def child(self, *, started=True, ready=True, **go):
        """Make a child, and wait until it is ready."""
        slot = len(self.children)
        lockdown = go.setdefault("lockdown", LOCKDOWN)
        mark = str(self.directory / f"mark.{slot}")
        child = ChildProcess(slot, f"cpu/{slot}", mark, lockdown)
        self.children.append(child)
        self.zygote.fork(slot, child.fds_for_child, lockdown.enclosure)
        child.close_child_ends()
        answer = self.from_zygote()[0]
        assert isinstance(answer, Forked), answer
        child.attach(answer.pid)
        if not started:
            return child
        settings = {
            "slot_name": child.slot_name,
            "run_id": self.run_id,
            "memory_backstop_bytes": 0,
            "result_max_bytes": 1 << 20,
            "checkpoint_max_bytes": 1 << 16,
            "tmp_root": str(self.directory / "tmp"),
        }
        child.send(Go(**{**settings, **go}))
        if ready:
            message = self.message(child)
            assert isinstance(message, Ready), message
        return child

    def job(self, kind, argument=None, **changes):
        """Make the next job for a child."""
        self.seq += 1
        fields = {
            "seq": self.seq,
            "id": self.seq,
            "token": 1000 + self.seq,
            "kind": kind,
            "attempt": 1,
            "payload": json.dumps(argument).encode(),
            "checkpoint": None,
            "timeout_s": 60.0,
            "soft_timeout_s": None,
        }
        return RunJob(**{**fields, **changes})

    def start(self, child, kind, argument=None, **changes):
        """Send a job and its ticket."""
        job = self.job(kind, argument, **changes)
        child.send(job)
        child.issue_tickets([job.seq])
        return job

    def run(self, child, kind, argument=None, **changes):
        """Run a job and return its `Done`."""
        self.start(child, kind, argument, **changes)
        done = self.message(child)
        assert isinstance(done, Done), done
        return done

    def result(self, child, kind, argument=None, **changes):
        """Run a job that must succeed and return its value."""
        done = self.run(child, kind, argument, **changes)
        assert done.ok, done.error
        return json.loads(done.result)

    def message(self, child, patience_s=PATIENCE_S):
        """Wait for one message of a child; None: it is gone."""
        kept = child.__dict__.setdefault("kept", [])
        deadline = time.monotonic() + patience_s
        while not kept:
            assert time.monotonic() < deadline, "the child says nothing"
            select.select([child], [], [], 1)
            messages = child.receive()
            if messages is None:
                return None
            kept += messages
        return kept.pop(0)

    def exit(self, child):
        """Wait for a child's end and return it."""
        return wait_until(child.reap, PATIENCE_S, "the child ends")

    def close(self):
        """End everything, and check that nothing is left."""
        for child in self.children:
            if child.pid:
                child.kill_tree()
                self.exit(child)
            child.close()
        self.zygote.close()
        wait_until(
            lambda: self.zygote.exit_status() is not None, PATIENCE_S, "zygote ends"
        )
        self.open_zygotes.discard(self.zygote.pid)
        wait_until(
            lambda: not sweep_orphans(self.open_zygotes, self.zygote.start_time),
            PATIENCE_S,
            "orphans end",
        )


__all__ = ["APPS", "PATIENCE_S", "Loaded", "Rig", "process_start_time"]
