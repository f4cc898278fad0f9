"""The environment, as Python shows it and as the C library has it.

Programs that a handler starts get the C library's. `os.putenv` changes only that one,
and so does a library in C. The C library never writes into a variable: a change shows
in the array of pointers to them, which is compared as bytes.
"""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None)
_environ = ctypes.c_void_p.in_dll(_libc, "environ")
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)


class Environment:
    """The variables as they are now, to be restored later."""

    def __init__(self) -> None:
        self._python = os.environ
        self.accept()

    def accept(self) -> None:
        """Make the present variables the ones to restore."""
        self._variables = dict(os.environ._data)  # type: ignore[attr-defined]  # noqa: SLF001 - 100 times faster than a copy
        self._entries = _entries()
        self._remember(len(self._entries))

    def restore(self) -> None:
        """Restore what differs."""
        self.restore_object()
        if os.environ._data != self._variables:  # type: ignore[attr-defined]  # noqa: SLF001 - see accept
            self._restore_python()
        # An array at another address may be shorter: it is never read.
        if _environ.value != self._at or self._view.raw != self._array:
            self._restore_c()

    def restore_object(self) -> None:
        """Restore `os.environ` itself; replacing it takes no call."""
        if os.environ is not self._python:
            os.environ = self._python  # noqa: B003 - putting the real one back

    def _restore_python(self) -> None:
        wanted = {os.fsdecode(k): os.fsdecode(v) for k, v in self._variables.items()}
        for name in set(os.environ) - set(wanted):
            del os.environ[name]
        os.environ.update(wanted)

    def _restore_c(self) -> None:
        _libc.clearenv()
        for entry in self._entries:
            name, equals, value = entry.partition(b"=")
            if name and equals:  # a strange parent may have passed malformed entries
                os.putenv(name, value)
        self._remember(len(_entries()))

    def _remember(self, count: int) -> None:
        self._at = _environ.value
        size = (count + 1) * _POINTER_BYTES
        self._view = (
            (ctypes.c_char * size).from_address(self._at)
            if self._at
            else ctypes.create_string_buffer(0)
        )
        self._array = self._view.raw


def _entries() -> list[bytes]:
    """Return the C library's variables as ``NAME=value``."""
    found: list[bytes] = []
    at = _environ.value
    if at:
        array = ctypes.cast(at, ctypes.POINTER(ctypes.c_char_p))
        while (entry := array[len(found)]) is not None:
            found.append(entry)
    return found
