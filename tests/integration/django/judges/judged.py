"""Our backend with what others have beside the interface.

The dummy's list of what was enqueued; and that the immediate one returns only when the
task has ended, here in a child of a real supervisor.
"""

import atexit
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import msgspec

from jobpool.integrations.django.backend import JobpoolBackend

PATIENCE_S = 60
FOLDER = Path(os.environ["JUDGES"])
WAITING = f"sqlite:///{FOLDER}/waiting.db"
LINES = FOLDER / "lines"
"""What children log, a line of JSON each."""


class Judged(JobpoolBackend):
    """Knows where Django's tests have their tasks.

    Their settings have no OPTIONS, and some of them no apps either.
    """

    def __init__(self, alias, params):
        super().__init__(alias, params)
        self.read = msgspec.structs.replace(self.read, modules=("tasks.tasks",))


class Listing(Judged):
    """Knows what it has enqueued, as `DummyBackend` does."""

    enqueued: ClassVar = []

    def clear(self):
        self.enqueued.clear()

    @property
    def results(self):
        return [self.get_result(result_id) for result_id in self.enqueued]

    def enqueue(self, task, args, kwargs):
        result = super().enqueue(task, args, kwargs)
        self.enqueued.append(result.id)
        return result


class Waiting(Judged):
    """Returns when the task has ended, as `ImmediateBackend` does."""

    supervisor = None

    def __init__(self, alias, params):
        super().__init__(alias, params)
        # What the other one has enqueued is to stay as it is.
        self.read = msgspec.structs.replace(self.read, database=None, store=WAITING)

    def enqueue(self, task, args, kwargs):
        result = super().enqueue(task, args, kwargs)
        if self.supervisor is None:
            type(self).supervisor = supervise(self.jobs.url)
        late = time.monotonic() + PATIENCE_S
        while not result.is_finished:
            assert time.monotonic() < late, f"has not ended: {result}"
            assert self.supervisor.poll() is None, (FOLDER / "log").read_text()
            time.sleep(0.01)
            result.refresh()
        self.repeat(result.id)
        return result

    def repeat(self, result_id):
        """Log here what its process has logged, and its hook if it has failed."""
        late = time.monotonic() + PATIENCE_S
        while True:
            text = LINES.read_text() if LINES.exists() else ""
            lines = text.rpartition("\n")[0].splitlines()  # the last may be half there
            found = [one for one in map(json.loads, lines) if result_id in one["text"]]
            if any("state=RUNNING" not in one["text"] for one in found):
                break
            assert time.monotonic() < late, f"no word of the end of {result_id}"
            time.sleep(0.01)
        for one in found:
            logging.getLogger("django.tasks").log(one["level"], one["text"])


def supervise(url, pools=("default",)):
    """Start a supervisor; it ends with this process."""
    env = {
        **os.environ,
        "JOBPOOL_STORE": url,
        "JOBPOOL_APP": "jobpool.integrations.django.application",
        "JUDGES_STORE": url,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    start = [sys.executable, "-m", "jobpool", "run", "--pools"]
    with (FOLDER / "log").open("wb") as log:
        process = subprocess.Popen(
            [*start, ",".join(f"{pool}=1" for pool in pools)],
            env=env,
            stdout=log,
            stderr=log,
        )
    atexit.register(process.wait)
    atexit.register(process.terminate)
    return process
