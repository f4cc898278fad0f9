"""Drives the shop: approves orders, kills the supervisor, starts another, settles."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console

from jobpool.cli.demo.orders.verdict import Account, Entry, account
from jobpool.cli.demo.place import check_empty
from jobpool.cli.demo.supervisor import Supervisor, environment
from jobpool.cli.demo.workspace import store_url
from jobpool.core.clock import SystemClock
from jobpool.core.jobs.flow import EXTERNAL, UNFINISHED_FLOWS
from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.core.rules.circuit_breaker import BreakerState
from jobpool.core.safe_text import one_line
from jobpool.errors import JobpoolError
from jobpool.operations.flows import Approve
from jobpool.operations.operate import operate
from jobpool.operations.principal import local_principal
from jobpool.operations.queue import Resume
from jobpool.operations.schedules import RunSchedule
from jobpool.store.opening import open_store
from jobpool.store.protocol import Store
from jobpool.store.records.flows import FlowFilter
from jobpool.store.records.operating import Filter

APP = "jobpool.cli.demo.orders.app"
_LEDGER = "ledger.db"
_POOLS = "io=4,cpu=1"
_PATIENCE = "10s"
"""So long an order waits for an approval, from when it is placed: nobody is there yet
to give it. A shop would wait for days."""
_LOOK_S = 0.2
_STUCK_S = 60.0
"""The demo gives up when no order has ended for so long."""
_KILLED_AFTER = 3
"""The supervisor is killed once one of so many orders has ended."""
_APPROVED = 2
"""Every second order that asks for approval gets it."""
_SETTLEMENT = "orders.settle"
_ASKING = f"{EXTERNAL}approval"
_OWNER = local_principal("jobpool demo orders")
_NOTE = "a large order of a good customer"
_KNOWN = "its crashes are known"
_SAID_MAX = 2000
_CLOCK = SystemClock()


class Driven(NamedTuple):
    """What has become of the shop."""

    account: Account
    settled_cents: int
    """As the nightly settlement says."""
    killed_with: int
    """So many orders were open when the supervisor was killed."""
    held: int
    """So many jobs it was running then."""


def place_orders(directory: Path, count: int) -> None:
    """Let the shop place its orders, in a process of its own.

    Raises:
        UsageError: the directory is not empty; nothing was written.
        JobpoolError: the shop failed.
    """
    check_empty(directory)
    store = {"JOBPOOL_STORE": store_url(directory)}
    shop = subprocess.run(
        [sys.executable, "-m", APP, str(count), _PATIENCE],
        cwd=directory,
        env={**environment(os.environ, directory), **store},
        capture_output=True,
        text=True,
        check=False,
    )
    if shop.returncode:
        raise JobpoolError(
            f"the shop ended with {shop.returncode} while it placed its orders; some "
            f"may be stored in {store_url(directory)}. It says: "
            f"{one_line(shop.stderr[-_SAID_MAX:])}"
        )


def drive(directory: Path, screen: Console, placed: int) -> Driven:
    """Run all orders to their ends; nothing is running any more after it.

    Args:
        directory: the demo's.
        screen: where to say what happens.
        placed: so many orders are stored.

    Raises:
        JobpoolError: no order ends any more, or a supervisor has ended by itself.
        KeyboardInterrupt: Ctrl-C.
    """
    url = store_url(directory)
    with contextlib.closing(open_store(url, create=False)) as store:
        shop = _Shop(store, placed, screen)
        with _supervisor(directory, signal.SIGKILL) as first:
            shop.wait(first, lambda: shop.ended() * _KILLED_AFTER >= placed)
        left, held = placed - shop.ended(), _running(store)
        screen.print(
            f"supervisor killed: {left} orders are open, {held} jobs were running; "
            "another one starts"
        )
        with _supervisor(directory, signal.SIGTERM) as second:
            shop.wait(second, lambda: shop.ended() == placed)
            cents = shop.settle(second)
        rows = store.flows(FlowFilter(), placed + 1)
    found = account(rows, _entries(directory), placed=placed)
    return Driven(found, cents, left, held)


class _Shop:
    """The shop as its owner sees it: through the store."""

    def __init__(self, store: Store, placed: int, screen: Console) -> None:
        self._store = store
        self._placed = placed
        self._screen = screen
        self._resumed: set[str] = set()
        self._asked: set[int] = set()
        """Jobs that were seen to ask for approval."""

    def ended(self) -> int:
        """Count the orders that have ended."""
        open_ones = FlowFilter(states=UNFINISHED_FLOWS)
        return self._placed - len(self._store.flows(open_ones, self._placed))

    def wait(self, supervisor: Supervisor, is_over: Callable[[], bool]) -> None:
        """Answer requests, and resume kinds, until something is the case.

        Raises:
            JobpoolError: no order has ended for too long.
        """
        ended, moved_s = -1, _CLOCK.monotonic_s()
        while not is_over():
            supervisor.check()
            self._approve()
            self._resume()
            now_s, now = _CLOCK.monotonic_s(), self.ended()
            if now != ended:
                ended, moved_s = now, now_s
            elif now_s - moved_s > _STUCK_S:
                raise supervisor.error(
                    f"no order has ended for {_STUCK_S:.0f} s, and "
                    f"{self._placed - now} are open; please report it"
                )
            time.sleep(_LOOK_S)

    def _approve(self) -> None:
        """Approve every second order that asks, as somebody at a desk would."""
        asking = Filter(kind=_ASKING, states=(JobState.WAITING,))
        for job in reversed(self._store.find(asking, self._placed)):
            if job.id not in self._asked:
                self._asked.add(job.id)
                if len(self._asked) % _APPROVED:
                    operate(self._store, _OWNER, Approve(job=job.id, note=_NOTE))

    def _resume(self) -> None:
        """Let a kind that crashes go on at once.

        Orders that kill are tried again after all others, so that in the end nothing
        but crashes is left, and each would wait twice as long as the one before.
        """
        for breaker in self._store.breakers():
            if breaker.state is BreakerState.CLOSED:
                continue
            operate(self._store, _OWNER, Resume(kind=breaker.kind, note=_KNOWN))
            if breaker.kind not in self._resumed:
                self._resumed.add(breaker.kind)
                self._screen.print(
                    f"{breaker.kind} was slowed, since so many of its jobs crash in a "
                    f"row; let go on: jobpool resume --kind {breaker.kind}",
                    soft_wrap=True,
                )

    def settle(self, supervisor: Supervisor) -> int:
        """Run the nightly settlement now, and return what it says.

        Raises:
            JobpoolError: it has not succeeded.
        """
        ids: list[int] = []
        run = RunSchedule(schedule=_SETTLEMENT, on_stored=ids.append)
        operate(self._store, _OWNER, run)
        began_s = _CLOCK.monotonic_s()
        while (job := self._store.get(ids[0])) is None or job.state not in FINISHED:
            supervisor.check()
            if _CLOCK.monotonic_s() - began_s > _STUCK_S:
                raise supervisor.error(f"the settlement has not ended: job {ids[0]}")
            time.sleep(_LOOK_S)
        if job.result is None:
            raise supervisor.error(f"the settlement is {job.state}: {job.reason}")
        return msgspec.json.decode(job.result, type=int)


@contextmanager
def _supervisor(directory: Path, end: signal.Signals) -> Iterator[Supervisor]:
    """Run a supervisor; end it with a signal, or at once if something goes wrong."""
    supervisor = Supervisor(directory, _POOLS, APP)
    try:
        yield supervisor
        supervisor.end(end)
    finally:
        supervisor.end(signal.SIGQUIT)


def _running(store: Store) -> int:
    return sum(row.jobs for row in store.stats() if row.state == JobState.LEASED)


def _entries(directory: Path) -> list[Entry]:
    """Read the shop's ledger."""
    with contextlib.closing(sqlite3.connect(directory / _LEDGER)) as ledger:
        rows = ledger.execute("SELECT number, what, cents FROM entries ORDER BY rowid")
        return [Entry(*row) for row in rows]
