"""A report is written with other things, and alone only if there is nothing else."""

from __future__ import annotations

from unittest.mock import Mock

from jobpool.core.rules.run_report import HostReport, PoolReport, RunReport, StoreReport
from jobpool.supervisor.storage.reports import ALONE_AFTER_S, Commits, PendingReport

ONE = RunReport(pools={"cpu": PoolReport(size=1)})
OTHER = RunReport(pools={"cpu": PoolReport(size=2)})


def test_the_first_report_is_written_at_once_and_later_ones_wait_for_company() -> None:
    """An idle supervisor writes next to nothing, and a failed commit loses nothing."""
    pending, store = PendingReport(), Mock()
    assert pending.write(store, "run") is None
    assert not pending.is_overdue(100.0)
    pending.take(ONE, 100.0)
    assert pending.is_overdue(100.0)
    assert pending.write(store, "run") is ONE
    assert pending.is_overdue(100.0), "its commit is not known"
    pending.written(ONE)
    assert not pending.is_overdue(1000.0)
    pending.take(ONE, 200.0)
    pending.take(OTHER, 210.0)
    assert not pending.is_overdue(200.0 + ALONE_AFTER_S - 0.1)
    assert pending.is_overdue(200.0 + ALONE_AFTER_S)
    assert pending.write(store, "run") is OTHER
    pending.take(ONE, 220.0)
    pending.written(OTHER)
    assert pending.write(store, "run") is ONE
    assert store.put_report.call_args.args == ("run", ONE)


def test_commits_are_told_once() -> None:
    """What was long ago says nothing of now."""
    commits = Commits()
    for took_ms in range(1, 101):
        commits.took(took_ms / 1000)
    told = commits.added_to(StoreReport(lock_waits=1))
    assert (told.commit_p50_ms, told.commit_p99_ms, told.lock_waits) == (50.0, 99.0, 1)
    assert commits.added_to(StoreReport()) == StoreReport()


def test_what_changes_all_the_time_is_no_news() -> None:
    """A host's figures never stand still; what people would do about them does."""
    before = RunReport(host=HostReport(cpu_busy=0.1, available_bytes=2**33))
    same = RunReport(
        host=HostReport(cpu_busy=0.25, memory_pressure=4.0, available_bytes=2**33 + 9),
        store=StoreReport(commit_p99_ms=4.0),
    )
    assert not same.differs(before)
    assert before.differs(None)
    for host in (
        HostReport(cpu_busy=0.9, available_bytes=2**33),
        HostReport(cpu_busy=0.1, memory_pressure=12.0, available_bytes=2**33),
        HostReport(cpu_busy=0.1, available_bytes=2**32),
        HostReport(cpu_busy=0.1, available_bytes=2**33, swapping=True),
    ):
        assert RunReport(host=host).differs(before), host
    assert RunReport(host=before.host, pools=ONE.pools).differs(before)
    slow = StoreReport(commit_p99_ms=40.0)
    assert RunReport(host=before.host, store=slow).differs(before)
