"""Reads the store for pages: on a few threads, each read with a deadline.

Theory of operation. A page must never hang on a big table, and ten pages must not keep
the store from the supervisors. So reads run on a few threads, each with a store of its
own. What is not known by the deadline is `Unknown`: the page says so, and shows the
rest. What has not begun by then never begins. What has is interrupted: it would keep a
thread from other pages, and the database from tidying up. All that one page reads, at
the same time or in turn, has one deadline. What many pages ask for alike within a
second is read once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from jobpool.core.safe_text import one_line
from jobpool.errors import StoreError, StoreUnavailable
from jobpool.store.protocol import Store

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

DEADLINE_S = 0.25
THREADS = 4
_INTERRUPTS_MAX, _INTERRUPT_S = 100, 0.05
_YOUNG_S = 1.0
_ALIKE_MAX = 32
"""Reads that are remembered by `Reading.read_alike`."""
_PAGE_ENDS_S: ContextVar[float] = ContextVar("page_ends_s")
"""When the page that is answered now has to be known, by `time.monotonic`."""
Read = Callable[[Store], T]
"""Reads something; called in a thread whose store it is."""


@dataclass(frozen=True)
class Unknown:
    """What could not be read, and why; shown in its place."""

    why: str


def begin_page(deadline_s: float) -> None:
    """Let all that is read for the page that is answered now have one deadline."""
    _PAGE_ENDS_S.set(time.monotonic() + deadline_s)


def left_s(deadline_s: float = DEADLINE_S) -> float:
    """Return how long what is read now may take.

    Args:
        deadline_s: if it is no part of a page.
    """
    ends_s = _PAGE_ENDS_S.get(None)
    return deadline_s if ends_s is None else max(0.0, ends_s - time.monotonic())


def late(deadline_s: float) -> Unknown:
    """Return what stands in the place of what was not read in time."""
    return Unknown(f"not known within {round(deadline_s * 1000)} ms")


def outcome(future: Future[T]) -> T | Unknown:
    """Return what a read that has ended has found.

    Raises:
        Exception: it failed, but not for the store's sake.
    """
    error = future.exception()
    if isinstance(error, StoreError):
        return Unknown(f"the store cannot be read: {one_line(str(error))}")
    return future.result()


class _Turn:
    """One read, which may be interrupted while it lasts."""

    def __init__(self) -> None:
        self.is_interrupted = False
        self._store: Store | None = None
        self._has_ended = False
        self._lock = threading.Lock()

    def begin(self, store: Store) -> None:
        """Note which store it uses.

        Raises:
            StoreUnavailable: it was interrupted before its store was open.
        """
        with self._lock:
            if self.is_interrupted:
                raise StoreUnavailable("it was late before it began; nothing was read")
            self._store = store

    def end(self) -> None:
        """Note that it has ended; what comes next on its thread is not interrupted."""
        with self._lock:
            self._store = None
            self._has_ended = True

    def interrupt(self) -> None:
        """Interrupt it, again and again: it may be between two queries."""
        for _ in range(_INTERRUPTS_MAX):
            with self._lock:
                if self._has_ended:
                    return
                self.is_interrupted = True
                if self._store is None:
                    return  # it will not begin
                with suppress(StoreError):  # who waits for the query will hear of it
                    self._store.interrupt()
            time.sleep(_INTERRUPT_S)


@dataclass(frozen=True)
class _Begun:
    """A read that has begun, and may have ended."""

    future: Future[Any]
    turn: _Turn
    began_s: float

    @property
    def is_in_time(self) -> bool:
        """Whether it has ended, and not because somebody had waited long enough."""
        if not self.future.done() or self.future.cancelled():
            return False
        return not self.turn.is_interrupted or self.future.exception() is None

    @property
    def is_worth_having(self) -> bool:
        """Whether who asks for the same now may have what it finds."""
        if time.monotonic() - self.began_s > _YOUNG_S:
            return False
        if self.future.done():
            return self.is_in_time and self.future.exception() is None
        return not self.turn.is_interrupted


def hear(wait: asyncio.Future[Any]) -> None:
    """Tell asyncio that what goes wrong is heard of elsewhere, if at all."""
    if not wait.cancelled():
        wait.exception()


class Reading:
    """Reads the store on threads of its own, until closed.

    Args:
        opener: opens the store; called in the thread that uses it.
        deadline_s: how long one read may take before its page is shown without it.
        threads: so many reads may run at the same time.
    """

    def __init__(
        self,
        opener: Callable[[], Store],
        *,
        deadline_s: float = DEADLINE_S,
        threads: int = THREADS,
    ) -> None:
        self._opener = opener
        self._deadline_s = deadline_s
        self._threads = ThreadPoolExecutor(threads, "jobpool-reads")
        self._interrupting = ThreadPoolExecutor(1, "jobpool-interrupts")
        self._local = threading.local()
        self._open: set[Store] = set()
        self._alike: OrderedDict[Hashable, _Begun] = OrderedDict()
        self._lock = threading.Lock()

    @overload
    async def read(self, one: Read[A], /) -> A | Unknown: ...
    @overload
    async def read(
        self, one: Read[A], two: Read[B], /
    ) -> tuple[A | Unknown, B | Unknown]: ...
    @overload
    async def read(
        self, one: Read[A], two: Read[B], three: Read[C], /
    ) -> tuple[A | Unknown, B | Unknown, C | Unknown]: ...
    @overload
    async def read(
        self, one: Read[A], two: Read[B], three: Read[C], four: Read[D], /
    ) -> tuple[A | Unknown, B | Unknown, C | Unknown, D | Unknown]: ...
    async def read(self, *reads: Read[Any]) -> Any:
        """Read one thing or several at the same time, all by one deadline.

        Args:
            reads: what is read, each for itself: one that is late keeps no other back.

        Returns:
            What was read, or `Unknown`; of several, a tuple.
        """
        found = await self._wait([self._begin(read) for read in reads])
        return found[0] if len(found) == 1 else found

    async def read_alike(self, name: Hashable, read: Read[T]) -> T | Unknown:
        """Read something, or return what was read within the last second.

        Args:
            name: of what is read: whoever gives the same name reads the same.
            read: reads it.
        """
        begun = self._alike.pop(name, None)
        if begun is None or not begun.is_worth_having:
            begun = self._begin(read)
        self._alike[name] = begun
        if len(self._alike) > _ALIKE_MAX:
            self._alike.popitem(last=False)
        found: T | Unknown
        (found,) = await self._wait([begun])
        return found

    async def read_at_length(self, read: Read[T]) -> T:
        """Read something without a deadline, such as an action's dry run.

        Raises:
            StoreError: the store cannot be read.
        """
        return await asyncio.wrap_future(self.begin(read))

    def begin(self, read: Read[T]) -> Future[T]:
        """Begin to read something, and do not wait for it."""
        return self._begin(read).future

    def close(self) -> None:
        """End; what reads now is interrupted, and a change is waited for."""
        with self._lock:
            for store in self._open:
                with suppress(StoreError):  # its thread hears of it, if it still reads
                    store.interrupt()
        self._threads.shutdown(cancel_futures=True)
        self._interrupting.shutdown(cancel_futures=True)
        for store in self._open:
            store.close()

    def _begin(self, read: Read[Any]) -> _Begun:
        turn = _Turn()
        future = self._threads.submit(self._run, read, turn)
        return _Begun(future, turn, time.monotonic())

    async def _wait(self, reads: Sequence[_Begun]) -> tuple[Any, ...]:
        """Wait for reads until the deadline; return what they have found."""
        waits = [asyncio.wrap_future(read.future) for read in reads]
        for wait in waits:  # asyncio is told that what goes wrong is heard of
            wait.add_done_callback(hear)
        await asyncio.wait(waits, timeout=left_s(self._deadline_s))
        return tuple(map(self._outcome, reads))

    def _outcome(self, read: _Begun) -> Any:
        if read.is_in_time:
            return outcome(read.future)
        if not read.future.cancel():
            self._interrupting.submit(read.turn.interrupt)
        return late(self._deadline_s)

    def _run(self, read: Read[T], turn: _Turn) -> T:
        store = self._store()
        try:
            turn.begin(store)
            return read(store)
        except StoreUnavailable:
            if not turn.is_interrupted:  # opened again next time
                self._local.store = None
                with self._lock:
                    self._open.discard(store)
                store.close()
            raise
        finally:
            turn.end()

    def _store(self) -> Store:
        """Return this thread's store, opened if need be."""
        store: Store | None = getattr(self._local, "store", None)
        if store is None:
            store = self._local.store = self._opener()
            with self._lock:
                self._open.add(store)
        return store
