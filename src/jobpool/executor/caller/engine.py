"""What an executor is made of: pickles calls, starts the host with the first one."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from jobpool.executor.caller.future import Call, Limits
from jobpool.executor.caller.host_client import Courier
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
    """The works of one executor.

    Args:
        workers: how many calls run at once.
        jobs_per_child: a child is replaced after so many calls.
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
        self._courier: Courier | None = None
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
        """Put a call in line, as `Executor.submit` says."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                "this executor belongs to the process that was forked; make one here"
            )
        courier = self._courier or self._begin()
        courier.check()
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
        except Exception as exc:  # noqa: BLE001 - the future's to tell
            call.future.set_running_or_notify_cancel()
            call.future.set_exception(exc)
            return call.future
        try:
            courier.submit(call)
        except RuntimeError:
            call.discard()
            raise
        return call.future

    def shutdown(self, *, wait: bool, cancel: bool) -> None:
        """End, as `Executor.shutdown` says; nothing in a forked process."""
        if os.getpid() != self._pid:
            return  # its lock may be held for ever in this copy
        with self._lock:
            self._is_shut = True
            courier = self._courier
        if courier is not None:
            courier.close(cancel=cancel)
            if wait:
                courier.join()

    def abandon(self) -> None:
        """The executor is garbage: end once the last call is done."""
        self.shutdown(wait=False, cancel=False)

    def _begin(self) -> Courier:
        """Start the host with the first call."""
        with self._lock:
            if self._courier is not None:
                return self._courier
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            spill_files.remove_stale()
            self._directories = spill_files.make_directories()
            self._lender = Lender(self._directories[0])
            try:
                setup = self._setup()
                self._courier = Courier(start_host(), setup, self._lender)
            except BaseException:
                self._lender.close()
                for directory in self._directories:
                    remove_tree(directory)
                raise
            return self._courier

    def _setup(self) -> Setup:
        initializer = None
        if self._start is not None:
            parts = dump_parts(self._start, loan=Loan(self._lender))  # lent to the end
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
    """Return what managers of this process ask for, under their modules' names."""
    return {
        f"{family}.process": bytes(
            importlib.import_module(f"{family}.process").current_process().authkey
        )
        for family in FAMILIES
    }


def _number_of(function: Callable[..., object]) -> int:
    """Return the same number for what is probably the same function.

    A lambda in a loop, or a bound method, is another object each time.
    """
    if type(function) is Parcel:
        function = function.function
    function = getattr(function, "__func__", function)
    return id(getattr(function, "__code__", function))


def _module_path() -> list[str]:
    """Return where this process finds modules; an empty entry means here."""
    return [entry or _here() for entry in sys.path]


def _here() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "/"  # it was removed under us: there is no going there
