"""Threads of native code: what the kernel shows of each, in our words."""

import platform

import pytest

from jobpool.sandbox.reset import native_threads

FUTEX = native_threads._FUTEX.get(platform.machine(), 202)


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (b"running\n", "runs"),
        (b"-1 0x7ffc9a0 0x7f31c0\n", "runs"),
        (b"%d 0x1 0x80 0x2 0x0 0x0 0x0 0x7ffc 0x7f31\n" % FUTEX, "rests"),
        (b"%d 0x1 0x80 0x2 0x7ffc0 0x0 0x0 0x7ffc 0x7f31\n" % FUTEX, "waits"),
        (b"%d 0x1 0x0 0x2 0x0 0x0 0x0 0x7ffc 0x7f31\n" % FUTEX, "waits"),
        (b"%d 0x1 0x80 0x2 0x0 0x0 0x0 0x7ffc 0x7f31\n" % (FUTEX + 1), "waits"),
        (b"", "rests"),
    ],
    ids=["running", "page", "futex", "timed", "shared", "other", "gone"],
)
@pytest.mark.skipif(
    platform.machine() not in native_threads._FUTEX, reason="its calls are not known"
)
def test_each_form_of_the_kernels_line_is_understood(monkeypatch, line, state):
    """A thread that waits for memory is in no call: its line has only three words."""
    monkeypatch.setattr(native_threads, "read", lambda _path: line)
    assert native_threads._state(1) == state
