"""`Executor`: functions in isolated processes, with `concurrent.futures`' interface."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor as StandardExecutor
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from jobpool.core.config.settings import SLOTS_MAX
from jobpool.core.units import DurationLike, SizeLike, duration_s, size_bytes
from jobpool.errors import ConfigError
from jobpool.executor.caller.engine import Engine
from jobpool.executor.caller.future import Limits
from jobpool.executor.pickling.pickling import packed
from jobpool.sandbox.system.platform import require_linux

T = TypeVar("T")
DEATHS_MAX = 1000


class _Submitter(StandardExecutor):
    """Accepts calls and applies its limits to them."""

    _limits: Limits

    def _engine(self) -> Engine:
        raise NotImplementedError

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call ``fn(*args, **kwargs)`` in a child.

        Calls begin in the order of their submission, with two exceptions: with several
        workers, later calls may overtake a quick one by some 15 ms; and a call that is
        made again after a death begins when the death is known.

        A call that cannot be pickled fails its own future with `pickle.PicklingError`.
        Connections, sockets, and multiprocessing's locks, queues and shared values can
        be sent to a call, but not returned from one. They are lent until the call ends;
        those in ``initargs``, until the executor ends.

        Raises:
            ExecutorBroken: the executor's host is gone, or its initializer failed.
            pickle.PicklingError: at the first call: initializer or initargs cannot be
                pickled; nothing was started.
            RuntimeError: it was shut down, or belongs to the parent process.
        """
        return self._engine().submit(self._limits, fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Return the results of ``fn`` over the iterables, in their order.

        Args:
            fn: takes one item of each iterable.
            iterables: consumed at once.
            timeout: the iterator raises TimeoutError when a result is not available
                this many seconds after this call.
            chunksize: this many items are sent as one call: cheaper, but its limits
                apply to all of them together, and one death fails them all.

        Raises:
            ValueError: chunksize is below 1.
        """
        if chunksize < 1:
            raise ValueError(f"chunksize: expected 1 or more, got {chunksize}")
        function = packed(fn)
        if chunksize == 1:
            return super().map(function, *iterables, timeout=timeout)
        chunks = _chunks(zip(*iterables, strict=False), chunksize)
        lists = super().map(partial(_call_each, function), chunks, timeout=timeout)
        return itertools.chain.from_iterable(lists)


class Executor(_Submitter):
    """Calls functions in child processes; one death fails one future.

    A drop-in replacement for `concurrent.futures.ProcessPoolExecutor`. Functions and
    arguments may be anything that dill can pickle. Children are killed from outside
    when they exceed their limits. A call whose child is killed or dies fails with
    `JobTimedOut`, `JobOutOfMemory` or `JobCrashed`; the others go on. What a call
    prints appears on this process's stderr when it has ended. A call may use an
    executor of its own; the processes of that one count towards the call's limits, and
    end with it.

    Args:
        max_workers: how many calls run at once; None: one per core of this process.
        timeout: longest time for one call, such as ``"30s"``; None: no limit.
        memory: most resident memory of one call's process tree, such as ``"1GiB"``.
        max_crashes: a call whose process dies is made again until it has died this
            often. A call that timed out is never made again.
        initializer: called in each new child. If it raises, the executor is broken.
        initargs: its arguments; as for `submit`.
        max_tasks_per_child: a child is replaced after this many calls; None: only
            occasionally, or when its memory grows.
        mp_context: accepted for compatibility with ProcessPoolExecutor and ignored:
            children are always forked from a process that shares nothing with this one.

    Raises:
        ValueError: a number is out of range.
        ConfigError: a limit cannot be parsed.
        JobpoolError: this platform cannot run children.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        timeout: DurationLike | None = None,
        memory: SizeLike | None = None,
        max_crashes: int = 1,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_tasks_per_child: int | None = None,
        mp_context: Any = None,  # noqa: ARG002 - see above
    ) -> None:
        require_linux()
        workers = len(os.sched_getaffinity(0)) if max_workers is None else max_workers
        _check_count(workers, SLOTS_MAX, "max_workers")
        if max_tasks_per_child is not None:
            _check_count(max_tasks_per_child, 10**9, "max_tasks_per_child")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer: expected a callable")
        self._limits = _limits(timeout, memory, max_crashes)
        start = None if initializer is None else (initializer, initargs)
        self._own = Engine(workers, max_tasks_per_child, start)
        self._finalizer = weakref.finalize(self, self._own.abandon)
        self._finalizer.atexit = (
            False  # the interpreter finishes all work before it exits
        )

    def _engine(self) -> Engine:
        return self._own

    def options(
        self,
        *,
        timeout: DurationLike | None = None,
        memory: SizeLike | None = None,
        max_crashes: int | None = None,
    ) -> Limited:
        """Return a view of this executor whose calls have other limits.

        Args:
            timeout: as for `Executor`; None: this executor's.
            memory: likewise.
            max_crashes: likewise.
        """
        own = self._limits
        given = _limits(timeout, memory, 1 if max_crashes is None else max_crashes)
        limits = Limits(
            own.timeout_s if timeout is None else given.timeout_s,
            own.memory_bytes if memory is None else given.memory_bytes,
            own.max_crashes if max_crashes is None else given.max_crashes,
        )
        return Limited(self, limits)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as in the standard library
        """Accept no more calls, and end all processes once the last call is done.

        Args:
            wait: return only when all processes are gone.
            cancel_futures: cancel calls that have not begun.
        """
        self._own.shutdown(wait=wait, cancel=cancel_futures)


class Limited(_Submitter):
    """A view of an executor, with other limits; it is not shut down itself."""

    def __init__(self, executor: Executor, limits: Limits) -> None:
        self._executor = executor
        self._limits = limits

    def _engine(self) -> Engine:
        return self._executor._engine()  # noqa: SLF001 - the same module


def _limits(
    timeout: DurationLike | None, memory: SizeLike | None, max_crashes: int
) -> Limits:
    _check_count(max_crashes, DEATHS_MAX, "max_crashes")
    timeout_s = None if timeout is None else duration_s(timeout, "timeout")
    if timeout_s == 0:
        raise ConfigError('timeout: must be longer than 0, for example "30s"')
    memory_bytes = None if memory is None else size_bytes(memory, "memory")
    return Limits(timeout_s, memory_bytes, max_crashes)


def _check_count(value: int, most: int, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what}: expected a whole number, got {type(value).__name__}")
    if not 1 <= value <= most:
        raise ValueError(f"{what}: {value} is out of range; expected 1 to {most}")


def _chunks(
    items: Iterable[tuple[Any, ...]], size: int
) -> Iterator[tuple[tuple[Any, ...], ...]]:
    items = iter(items)
    while chunk := tuple(itertools.islice(items, size)):
        yield chunk


def _call_each(function: Callable[..., T], chunk: Iterable[tuple[Any, ...]]) -> list[T]:
    """Make the calls of a chunk. Runs in a child."""
    return [function(*arguments) for arguments in chunk]
