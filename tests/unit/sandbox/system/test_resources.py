"""What is read of a host's memory and processors."""

import os

import psutil
import pytest

from jobpool.sandbox.system import resources
from jobpool.sandbox.system.resources import Memory, Processors, memory

MIB = 2**20
MEMINFO = """\
MemTotal:        2048 kB
MemFree:          512 kB
{}SwapTotal:       1024 kB
SwapFree:         256 kB
HugePages_Total:       0
"""


def shown(monkeypatch, tmp_path, name, text):
    """Show this text as the kernel's."""
    path = tmp_path / name.strip("_")
    path.write_text(text)
    monkeypatch.setattr(resources, name, str(path))


@pytest.mark.parametrize(
    ("line", "available"), [("MemAvailable:    1024 kB\n", 2**20), ("", 2**19)]
)
def test_memory_is_as_the_kernel_says(monkeypatch, tmp_path, line, available):
    """What is free is all that is available where nothing else is said."""
    shown(monkeypatch, tmp_path, "_MEMINFO", MEMINFO.format(line))
    assert memory() == Memory(2 * MIB, available, 768 * 1024)


def test_this_host_is_seen_as_another_library_sees_it():
    """Its memory, and the swap that there is."""
    found, theirs = memory(), psutil.virtual_memory()
    assert found.total == theirs.total
    assert 0 < found.available <= found.total
    assert 0 <= found.swap_used <= psutil.swap_memory().total


@pytest.mark.parametrize(
    ("later", "busy"),
    [
        ("200 0 100 1000 0 0 0 0 77 0", 1.0),
        ("100 0 100 1060 40 0 0 0 0 0", 0.0),
        ("110 5 105 1060 0 10 5 5 0 0", 0.4),
        ("100 0 100 1000 0 0 0 0 0 0", 0.0),
        ("200 0 100 900 0 0 0 0 0 0", 1.0),
    ],
    ids=["all", "waits", "some", "no time has passed", "idle time went back"],
)
def test_processors_are_busy_unless_idle_or_waiting(monkeypatch, tmp_path, later, busy):
    """Since the look before; a guest's time is contained in the user's."""
    shown(monkeypatch, tmp_path, "_STAT", "cpu  100 0 100 1000 0 0 0 0 0 0\ncpu0 1\n")
    processors = Processors()
    shown(monkeypatch, tmp_path, "_STAT", f"cpu  {later}\nintr 1\n")
    assert processors.busy() == pytest.approx(busy)
    assert processors.busy() == 0.0


def test_this_host_has_processors_that_work():
    """What this test does itself counts."""
    processors = Processors()
    before = os.times()
    while os.times().user - before.user < 0.05:
        pass
    assert 0 < processors.busy() <= 1
