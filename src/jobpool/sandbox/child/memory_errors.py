"""Whether a MemoryError that ended an attempt came from its memory limit.

Theory of operation. An allocation far beyond the limit never becomes resident, and is
never seen from outside: the data limit (`data_limit`) makes it fail, and Python raises
a MemoryError. The kernel keeps no record of that. But such an error comes out of C: the
innermost step of its traceback is a call or an operation, not a ``raise``. And the
request was above the limit if what is left of the limit can be allocated right now:
otherwise the machine refused it, or a limit of the handler's own.

A MemoryError that Python code raised does not count, unless the process was near its
limit. One from another process (multiprocessing) has left its traceback there: it
counts as a refused allocation. So does the one that Python's parser raises for code
that is nested too deeply.
"""

from __future__ import annotations

import mmap
import opcode
import os
import re
import resource
from collections.abc import Iterator
from math import prod

from jobpool.core.units import show_size
from jobpool.sandbox.confinement.data_limit import is_signed
from jobpool.sandbox.system.procfs import data_bytes, resident_bytes

NEAR_SHARE = 0.9
"""A process whose peak reached this share of its limit was near it."""
_RAISES = {opcode.opmap["RAISE_VARARGS"], opcode.opmap["RERAISE"]}
_REMOTE = ("RemoteTraceback", "_RemoteTraceback")
"""Set by multiprocessing and concurrent.futures as the cause of a remote exception."""
_UNITS = {"bytes": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "PiB": 50, "EiB": 60}
_SIZE = re.compile(r"(\d{1,20}\.?\d{0,9}) ?(bytes|[KMGTPE]iB)\b|\bsize (\d{1,20})\b")
"""How numpy, torch and Arrow state the size that was refused."""
_TEXT_MAX_CHARS = 1000
_KIB = 1024


def memory_limit_reason(exc: BaseException, limit_bytes: int) -> str:
    """Say how an exception comes from a memory limit; "": it does not.

    Args:
        exc: the exception that left the handler; its frames still hold their objects.
        limit_bytes: the attempt's limit; 0: unknown.
    """
    errors = list(_memory_errors(exc))
    if not errors or not limit_bytes:
        return ""
    now_bytes = resident_bytes(os.getpid())
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
    peak_bytes = max(now_bytes, peak_bytes)
    limit = f"memory limit of {show_size(limit_bytes)}"
    if peak_bytes >= NEAR_SHARE * limit_bytes:
        return f"raised MemoryError at {show_size(peak_bytes)}, near its {limit}"
    refused = next(filter(_is_refused, errors), None)
    left_bytes = _data_left_bytes()
    if refused is None or not _is_available(limit_bytes - now_bytes, left_bytes):
        return ""
    wanted_bytes = _wanted_bytes(refused)
    wanted = show_size(wanted_bytes or max(left_bytes, limit_bytes))
    had = f"{show_size(now_bytes)} in use"
    if wanted_bytes and wanted_bytes + now_bytes <= limit_bytes:
        had = f"{show_size(data_bytes())} reserved"  # and hardly any of it used
    more = "" if wanted_bytes else "more than "
    return f"asked for {more}{wanted} with {had}, over its {limit}"


def _memory_errors(exc: BaseException) -> Iterator[MemoryError]:
    """Yield them, also from exception groups, but not those that are only a cause."""
    waiting = [exc]
    for one in waiting:
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
        elif isinstance(one, MemoryError):
            yield one


def _is_refused(error: MemoryError) -> bool:
    """Say whether it comes from C code or from another process."""
    if type(error.__cause__).__name__ in _REMOTE:
        return True
    step = error.__traceback__
    if step is None:
        return False
    while step.tb_next is not None:
        step = step.tb_next
    code, at = step.tb_frame.f_code.co_code, step.tb_lasti
    return not (0 <= at < len(code) and code[at] in _RAISES)


def _data_left_bytes() -> int:
    """Return what the data limit still allows; 0: none of ours is set."""
    bound, _hard = resource.getrlimit(resource.RLIMIT_DATA)
    return max(0, bound - data_bytes()) if is_signed(bound) else 0


def _is_available(size_bytes: int, left_bytes: int) -> bool:
    """Say whether only the data limit would refuse so much now."""
    if 0 < left_bytes <= size_bytes:
        return True
    try:
        mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return False
    return True


def _wanted_bytes(error: MemoryError) -> int:
    """Return the size that its text states as requested; 0: none."""
    shape = getattr(error, "shape", None)
    item_bytes = getattr(getattr(error, "dtype", None), "itemsize", None)
    if isinstance(shape, tuple) and isinstance(item_bytes, int):
        return prod(shape) * item_bytes
    found = _SIZE.search(str(error)[:_TEXT_MAX_CHARS])
    if found is None:
        return 0
    number, unit, plain = found.groups()
    return int(plain or float(number) * 2 ** _UNITS[unit])
