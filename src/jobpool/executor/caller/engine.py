"""The engine of an executor: pickles calls, starts the host with the first one."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from jobpool.executor.caller.future import Call, Limits
from jobpool.executor.caller.host_client import HostClient
from jobpool.executor.caller.start_host import start_host
from jobpool.executor.pickling.by_value import Parcel
from jobpool.executor.pickling.function_cache import Parcels
from jobpool.executor.pickling.lending import FAMILIES, Lender, Loan
from jobpool.executor.pickling.pickling import dump_parts, dumps, loads
from jobpool.executor.wire import spill_files
from jobpool.executor.wire.messages import Setup
from jobpool.sandbox.system.procfs import process_start_time
from jobpool.sandbox.system.remove_tree import remove_tree

T = TypeVar("T")


class Engine:
    """The engine of one executor.

    Args:
        workers: how many calls run at once.
        jobs_per_child: a child is replaced after this many calls.
        start: initializer and its arguments.
    """

    def __init__(
        self,
        workers: int,
        jobs_per_child: int | None,
        start: tuple[Callable[..., object], tuple[Any, ...]] | None,
    ) -> None:
        self._workers = workers
        self._jobs_per_child = jobs_per_child
        self._start = start
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._client: HostClient | None = None
        self._directories: tuple[str, ...] = ()
        self._is_shut = False
        self._parcels = Parcels(dumps, loads)

    def submit(
        self,
        limits: Limits,
        function: Callable[..., T],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> Future[T]:
        """Queue a call; see `Executor.submit`."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                "this executor belongs to the parent process; create one here"
            )
        client = self._client or self._begin()
        client.check()
        call = Call(next(self._numbers), _number_of(function), limits)
        try:
            loan = Loan(self._lender)
            try:
                sent = self._parcels.of(function)
                parts = dump_parts((sent, arguments, keywords), loan=loan)
                call.data = spill_files.wrap(parts, self._directories)
            except BaseException:
                loan.end()
                raise
            if not loan.is_empty:
                call.loan = loan
        except Exception as exc:  # noqa: BLE001 - the future raises it
            call.future.set_running_or_notify_cancel()
            call.future.set_exception(exc)
            return call.future
        try:
            client.submit(call)
        except RuntimeError:
            call.discard()
            raise
        return call.future

    def shutdown(self, *, wait: bool, cancel: bool) -> None:
        """See `Executor.shutdown`; has no effect in a forked process."""
        if os.getpid() != self._pid:
            return  # its lock may be held forever in this copy
        with self._lock:
            self._is_shut = True
            client = self._client
        if client is not None:
            client.close(cancel=cancel)
            if wait:
                client.join()

    def abandon(self) -> None:
        """End once the last call is done: the executor was garbage-collected."""
        self.shutdown(wait=False, cancel=False)

    def _begin(self) -> HostClient:
        """Start the host with the first call."""
        with self._lock:
            if self._client is not None:
                return self._client
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            spill_files.remove_stale()
            self._directories = spill_files.make_directories()
            self._lender = Lender(self._directories[0])
            try:
                setup = self._setup()
                self._client = HostClient(start_host(), setup, self._lender)
            except BaseException:
                self._lender.close()
                for directory in self._directories:
                    remove_tree(directory)
                raise
            return self._client

    def _setup(self) -> Setup:
        initializer = None
        if self._start is not None:
            parts = dump_parts(
                self._start, loan=Loan(self._lender)
            )  # lent until the executor ends
            initializer = spill_files.wrap(parts, self._directories)
        return Setup(
            caller_pid=self._pid,
            caller_start_time=process_start_time(self._pid) or 0,
            workers=self._workers,
            jobs_per_child=self._jobs_per_child,
            directories=self._directories,
            sys_path=_module_path(),
            working_directory=_here(),
            initializer=initializer,
            authkeys=_authkeys(),
        )


def _authkeys() -> dict[str, bytes]:
    """Return the keys that this process's managers ask for, by module name."""
    return {
        f"{family}.process": bytes(
            importlib.import_module(f"{family}.process").current_process().authkey
        )
        for family in FAMILIES
        if importlib.util.find_spec(family) is not None  # multiprocess is no dependency
    }


def _number_of(function: Callable[..., object]) -> int:
    """Return a number that is the same for what is probably the same function.

    A lambda in a loop, or a bound method, is a new object each time.
    """
    if type(function) is Parcel:
        function = function.function
    function = getattr(function, "__func__", function)
    return id(getattr(function, "__code__", function))


def _module_path() -> list[str]:
    """Return this process's module path; empty entries become the current directory."""
    return [entry or _here() for entry in sys.path]


def _here() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "/"  # it was removed: a child could not change to it
