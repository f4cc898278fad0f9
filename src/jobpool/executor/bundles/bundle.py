"""A bundle, many quick calls sent as one job: how a child makes them.

Each call gets what a separate job would: its own context, a process in its initial
state, its own output. The supervisor enforces the calls' time limit plus a margin
(`budget_s`) on the whole job. A call begins only within that margin, so none is killed
before its time limit, nor much after it.
"""

from __future__ import annotations

import contextvars
import os
import time
from collections.abc import Callable

import msgspec

from jobpool.core.application import current
from jobpool.executor.bundles.bundle_file import CallEnd, ChildTray, child_tray
from jobpool.executor.bundles.durations import QUICK_S
from jobpool.sandbox.protocol.messages import encode

NEVER_S = float("inf")
_SCHEDSTAT = "/proc/thread-self/schedstat"
_NS = 10**9
BUDGET_SHARE = 0.01
"""The margin, as a share of the time limit."""
BYTES_MAX = 16 * 2**20
"""A bundle with more bytes of results begins no more calls: the rest goes back."""


def budget_s(timeout_s: float) -> float:
    """Return how long a bundle of calls with this time limit may begin new ones."""
    return timeout_s * BUDGET_SHARE


class Bundle(msgspec.Struct, array_like=True):
    """The payload of a bundle's job."""

    tray: str
    calls: list[bytes]
    """In order; a call's index is its place."""
    budget_s: float | None
    """After this long the bundle begins no more calls: the rest goes back."""


def make_calls(payload: bytes, call: Callable[[bytes], bytes]) -> bytes:
    """Make the calls of a bundle. Runs in a child.

    Args:
        payload: an encoded `Bundle`.
        call: makes one call; never raises.

    Returns:
        The call end that could not be written to the bundle file, if any; else ``b""``.

    Raises:
        OSError: the bundle file is gone.
    """
    begun_s = time.monotonic()
    bundle = msgspec.msgpack.decode(payload, type=Bundle)
    until_s = NEVER_S if bundle.budget_s is None else begun_s + bundle.budget_s
    with child_tray(bundle.tray) as tray:
        if tray.is_used:
            # An earlier attempt was interrupted, perhaps while it wrote an end: what
            # came after half an end could not be read. All the rest goes back.
            return b""
        return _make_calls(bundle.calls, call, tray, until_s)


def _make_calls(
    calls: list[bytes], call: Callable[[bytes], bytes], tray: ChildTray, until_s: float
) -> bytes:
    me, size = os.getpid(), 0
    waited_s = _waited_s()
    while (place := tray.take()) is not None:
        begun_s = time.perf_counter()
        wrapped = contextvars.copy_context().run(call, calls[place])
        duration_s = time.perf_counter() - begun_s
        if os.getpid() != me:
            return b""  # a copy that the call has forked, and that came back from it
        output, may_go_on = current.restore()
        if duration_s > QUICK_S:
            # On a busy machine, most calls that seem slow have only waited for a core.
            before_s, waited_s = waited_s, _waited_s()
            duration_s = max(0.0, duration_s - (waited_s - before_s))
        end = CallEnd(place, wrapped, output, duration_s)
        try:
            tray.put(end)
        except OSError:
            return encode(end)
        size += len(wrapped) + len(output)
        if not may_go_on or size > BYTES_MAX or time.monotonic() >= until_s:
            break
    return b""


def _waited_s() -> float:
    """Return how long this thread has waited for a core; 0 if that is not measured."""
    try:
        with open(_SCHEDSTAT, "rb", buffering=0) as file:  # noqa: PTH123 - quick
            return int(file.read().split()[1]) / _NS
    except OSError:
        return 0.0
