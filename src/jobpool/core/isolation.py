"""What children are kept from: one table of measures, and which are in force. Pure.

The README, `jobpool doctor`, the start of a supervisor and the child itself all go by
this table. A measure is part of a level, or an option of the pool asks for it. At the
standard level what the kernel lacks is left out and said; what an operator has asked
for by name is never left out in silence: the start is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from jobpool.core.settings import PoolSettings, SandboxLevel
from jobpool.errors import ConfigError


class Feature(StrEnum):
    """What a kernel, and our rights on it, may offer."""

    NO_NEW_PRIVS = "no_new_privs"
    SCOPES = "Landlock 6 (Linux 6.12)"
    FILE_RULES = "Landlock 3 (Linux 6.2)"
    FILTERS = "seccomp filters"
    ADMIN = "CAP_SYS_ADMIN"


class Measure(NamedTuple):
    """One thing that keeps a child in."""

    name: str
    asked_by: str
    """The level that it is part of, or the option that asks for it."""
    needs: tuple[Feature, ...]
    stops: str
    may_break: str


NO_NEW_PRIVS = Measure(
    "no_new_privs",
    "standard",
    (Feature.NO_NEW_PRIVS,),
    "rights gained by starting a program (setuid, file capabilities)",
    "sudo, su, ping in a handler; `new_privileges = true` leaves it out",
)
SIGNALS = Measure(
    "signals",
    "standard",
    (Feature.SCOPES,),
    "signals to, and writing the memory of, the supervisor, other jobs and all else "
    "that the job has not started; by root as well",
    "handlers that signal or trace such a process",
)
SYSCALLS = Measure(
    "system calls",
    "standard",
    (Feature.FILTERS,),
    "leaving the process tree that is killed; ptrace, BPF, kernel modules, kexec, "
    "reboot, swap",
    "debuggers that a handler starts; 32-bit programs",
)
WRITE = Measure(
    "files",
    "write = [paths]",
    (Feature.FILE_RULES,),
    "creating, changing or removing files anywhere but there and in TMPDIR",
    "caches in the home directory; multiprocessing's locks (they need `/dev/shm`)",
)
NETWORK = Measure(
    "network",
    "network = false",
    (Feature.FILTERS,),
    "sockets to other machines and to this one's ports, UDP and raw ones included",
    "all clients; sockets of the file system and those opened beforehand still work",
)
ENVIRONMENT = Measure(
    "environment",
    "env = [names]",
    (),
    "reading passwords and keys that are meant for other programs",
    "libraries that look for variables which are not named",
)
MEASURES = (NO_NEW_PRIVS, SIGNALS, SYSCALLS, WRITE, NETWORK, ENVIRONMENT)


def obstacles(measure: Measure, lacking: Mapping[Feature, str]) -> str:
    """Return why a measure cannot be in force here; empty: it can."""
    return "; ".join(
        lacking[feature] for feature in measure.needs if feature in lacking
    )


class Lockdown(msgspec.Struct, frozen=True, array_like=True):
    """What a child does to itself before anything of the user's runs in it."""

    no_new_privs: bool = False
    signals: bool = False
    syscalls: bool = False
    write: tuple[str, ...] | None = None
    """Where files may be written; None: wherever the user may."""
    network: bool = True
    nice: int = 0
    cpus: tuple[int, ...] | None = None
    """Cores to run on; None: as the supervisor."""


class Gap(NamedTuple):
    """A measure that is wanted and not in force."""

    measure: Measure
    why: str


def plan(
    pool: PoolSettings, lacking: Mapping[Feature, str]
) -> tuple[Lockdown, tuple[Gap, ...]]:
    """Decide what a pool's children do to themselves here.

    Args:
        pool: what is asked for.
        lacking: what this machine does not offer, and why.

    Returns:
        The measures in force, and those of the level that cannot be.

    Raises:
        ConfigError: something that was asked for by name cannot be.
    """
    gaps = {gap.measure: gap for gap in _gaps(pool, lacking)}
    by_name = [gap for gap in gaps.values() if gap.measure in {WRITE, NETWORK}]
    if by_name:
        raise ConfigError(
            f"pool {pool.name}: "
            + "; ".join(
                f"{g.measure.asked_by} is not possible here: {g.why}" for g in by_name
            )
            + ". Leave it out, or run where it is"
        )
    level = pool.sandbox is not SandboxLevel.OFF
    lockdown = Lockdown(
        no_new_privs=_is_wanted(NO_NEW_PRIVS, pool) and NO_NEW_PRIVS not in gaps,
        signals=level and SIGNALS not in gaps,
        syscalls=level and SYSCALLS not in gaps,
        write=pool.write,
        network=pool.network,
        nice=pool.nice,
        cpus=pool.cpus,
    )
    return lockdown, tuple(gaps.values())


def _gaps(pool: PoolSettings, lacking: Mapping[Feature, str]) -> Iterator[Gap]:
    unprivileged = pool.new_privileges and Feature.ADMIN in lacking
    for measure in MEASURES:
        if not _is_wanted(measure, pool):
            continue
        why = obstacles(measure, lacking)
        if not why and unprivileged and measure.needs:
            why = (
                "with new_privileges = true it takes CAP_SYS_ADMIN, which is not there"
            )
        if why:
            yield Gap(measure, why)


def _is_wanted(measure: Measure, pool: PoolSettings) -> bool:
    """Say whether the level or an option of the pool asks for a measure."""
    if measure is WRITE:
        return pool.write is not None
    if measure is NETWORK:
        return not pool.network
    if measure is ENVIRONMENT:
        return pool.env is not None
    if measure is NO_NEW_PRIVS:
        needed = pool.write is not None or not pool.network
        wanted = pool.sandbox is not SandboxLevel.OFF or needed
        return wanted and not pool.new_privileges
    return pool.sandbox is not SandboxLevel.OFF
