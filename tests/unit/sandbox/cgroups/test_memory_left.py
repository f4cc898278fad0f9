"""What is left counts the scarcest of the host and the cgroups, and their caches."""

from __future__ import annotations

from pathlib import Path

import psutil

from jobpool.sandbox.cgroups.memory_left import Left, MemoryLeft

MIB = 2**20


def cgroup(
    folder: Path, most: str, used_mib: int, *, cache_mib: int = 0, shmem_mib: int = 0
) -> str:
    """Write a cgroup's files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used_mib * MIB}\n")
    stat = {
        "anon": used_mib * MIB,
        "shmem": shmem_mib * MIB,
        "active_file": cache_mib * MIB // 4,
        "inactive_file": cache_mib * MIB // 4,
        "slab_reclaimable": cache_mib * MIB // 2,
    }
    lines = "".join(f"{name} {value}\n" for name, value in stat.items())
    (folder / "memory.stat").write_text(lines)
    return str(folder)


def test_the_scarcest_cgroup_counts_and_its_caches_are_available(
    tmp_path: Path,
) -> None:
    """A page cache is given up before anyone is killed; shared memory is not."""
    outer = cgroup(tmp_path / "a", str(64 * MIB), 50, cache_mib=8, shmem_mib=4)
    inner = cgroup(tmp_path / "a" / "b", str(48 * MIB), 20)
    left = MemoryLeft([inner, outer]).look()
    assert left == Left(22 * MIB, 64 * MIB)


def test_what_is_scarcest_is_for_its_caller_to_say(tmp_path: Path) -> None:
    """Less may be left of little than of much, and suffice."""
    large = cgroup(tmp_path / "a", str(64 * MIB), 54)
    small = cgroup(tmp_path / "a" / "b", str(8 * MIB), 1)
    assert MemoryLeft([small, large]).look() == Left(7 * MIB, 8 * MIB)
    asked = MemoryLeft([small, large], scarcity=lambda left: (left[0] / left[1], 0))
    assert asked.look() == Left(10 * MIB, 64 * MIB)


def test_without_a_limit_the_host_counts(tmp_path: Path) -> None:
    """A cgroup without a limit, or one that is gone, says nothing."""
    folder = cgroup(tmp_path / "a", "max", 50)
    host = psutil.virtual_memory().total
    assert MemoryLeft([folder, str(tmp_path / "gone")]).look().total_bytes == host
    assert MemoryLeft([]).look().total_bytes == host


def test_a_cgroup_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    """Its limit may have been lowered below what it has."""
    assert MemoryLeft([cgroup(tmp_path, str(MIB), 5)]).look() == Left(0, MIB)
