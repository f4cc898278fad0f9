"""Why a supervisor serves nobody: what is told to whoever has to decide what to do."""

import pytest

from jobpool.cli.diagnose import doctor, status
from jobpool.core.clock import SystemClock
from jobpool.core.rules.admission import Admission
from jobpool.monitoring.glance.reading import Reader
from jobpool.monitoring.looking import presence
from jobpool.monitoring.looking.presence import why_silent
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from jobpool.store.records.runs import Run
from support.store.storing import ManualClock, begin_run

NOW_MS = 1_795_000_000_000
RUN = Run(
    id="run-1",
    host="web-1",
    pid=7,
    boot_id="b",
    pid_namespace=1,
    version="0",
    heartbeat_at_ms=NOW_MS - 41_000,
    lease_until_ms=NOW_MS + 19_000,
)


@pytest.mark.parametrize(
    ("facts", "late_ms", "said"),
    [
        ((False, None, False), 0, ""),
        ((False, 7, False), 0, ""),
        ((True, None, False), 0, "it has died; the next supervisor"),
        ((False, 7, True), 0, "it is stopped, by SIGSTOP or a debugger: kill -CONT 7"),
        ((False, None, False), 20_000, "no word for 1m01s: look at its log and its"),
        ((False, 7, False), 20_000, "no word for 1m01s, though its process is there"),
        # A pid in a directory that another one has made says nothing of this run.
        ((False, 8, True), 20_000, "no word for 1m01s: look at its log and its host"),
    ],
)
def test_a_supervisor_is_silent_for_a_reason(
    tmp_path, monkeypatch, facts, late_ms, said
):
    """Nobody is told that one is dead which runs and cannot write to the store."""
    died, holder, stopped = facts
    monkeypatch.setattr(presence, "has_died", lambda _root, _run: died)
    monkeypatch.setattr(presence, "holder", lambda _folder: holder)
    monkeypatch.setattr(presence, "_is_stopped", lambda _pid: stopped)
    found = why_silent(tmp_path, RUN, NOW_MS + late_ms)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_leases_are_judged_by_the_clock_of_their_store(tmp_path):
    """A host whose clock is wrong must not call all supervisors dead."""
    store = MemoryStore(
        MemoryDatabase(str(tmp_path)),
        clock=ManualClock(SystemClock().utc_ms() - 3_600_000),
        admission=Admission(),
        run_root=tmp_path / "jobs.run",
    )
    begin_run(store, pools={"cpu": "1"})
    assert Reader(store).see().not_alive == {"run-1": ""}
    seen = status._read_status(store, figures=False)
    assert seen.not_alive == {"run-1": ""}
    assert doctor._clock_facts(store)[0].value.startswith(
        "this host's is 1h00m ahead of the store's"
    )
    store.close()
