"""Isolation measures: one table of them, and which are in force. Pure.

The manual, `jobpool doctor`, the start of a supervisor and the child itself all use
this table. A measure is part of a level, or an option of the pool asks for it. At the
standard level a measure that the kernel lacks is left out and reported. A measure that
an operator has asked for by name is never left out: the start is refused instead. The
whole strict level counts as asked for by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from jobpool.core.config.settings import PoolSettings, SandboxLevel
from jobpool.errors import ConfigError


class Feature(StrEnum):
    """What a kernel may offer, given jobpool's rights on it."""

    NO_NEW_PRIVS = "no_new_privs"
    SCOPES = "Landlock 6 (Linux 6.12)"
    FILE_RULES = "Landlock 3 (Linux 6.2)"
    FILTERS = "seccomp filters"
    ADMIN = "CAP_SYS_ADMIN"
    NAMESPACES = "PID, IPC and mount namespaces"
    MOUNTS = "mounts in a namespace of its own"
    USERS = "dedicated users"


class Measure(NamedTuple):
    """One measure that confines a child."""

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
    "reboot, swap; limits and priorities of other processes; the supervisor's cores",
    "debuggers that a handler starts; changing the limits or the priority of a process "
    "that it has started, by its number; 32-bit programs",
)
WRITE = Measure(
    "files",
    "write = [paths]",
    (Feature.FILE_RULES,),
    "creating, changing or removing files anywhere but there and in TMPDIR (not their "
    "modes, owners and times)",
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
OWN_PROCESSES = Measure(
    "own processes",
    "strict",
    (Feature.NAMESPACES, Feature.MOUNTS),
    "seeing any process but the job's own, in `/proc` as well; shared memory, "
    "semaphores and queues of others; leaving anything behind",
    "handlers that look for other processes, or tell their pid to others",
)
OWN_FILES = Measure(
    "own files",
    "strict",
    (Feature.NAMESPACES, Feature.MOUNTS, Feature.FILE_RULES),
    "seeing files other than programs, Python, the application and what `read` and "
    "`write` name: home directories, other jobs' files, Docker's socket, the store and "
    "its run directory; writing but to `write`",
    "handlers that read data elsewhere, or ask a local server through its socket; "
    "`complete()` on SQLite, unless `write` names the store's directory",
)
OWN_SPACE = Measure(
    "own space",
    "strict",
    (Feature.NAMESPACES, Feature.MOUNTS),
    "filling the host's disk or `/dev/shm`: its working directory and TMPDIR are in "
    "memory, bounded by the pool's memory limit and 100,000 files",
    "relative paths to the application's files; large temporary files",
)
OWN_ENVIRONMENT = Measure(
    "own environment",
    "strict",
    (),
    "reading variables but `PATH`, `LANG`, `TZ` and the like, those of Python and TLS, "
    "and what `env` names; `HOME` is its temporary directory",
    "libraries that look for variables which are not named, or for files in the home "
    "directory",
)
OWN_USER = Measure(
    "own user",
    "strict",
    (Feature.USERS,),
    "as root: all that root may; each child is a user of its own, with 1,024 processes",
    "files that others may not read, or in `write` may not write; looking up its user",
)
SURFACE = Measure(
    "kernel surface",
    "strict",
    (Feature.FILTERS, Feature.SCOPES),
    "namespaces, mounts, keyrings, performance events, userfaultfd, io_uring; abstract "
    "sockets of others",
    "sandboxes that a handler starts, such as a browser's",
)
MEASURES = (
    NO_NEW_PRIVS,
    SIGNALS,
    SYSCALLS,
    WRITE,
    NETWORK,
    ENVIRONMENT,
    OWN_PROCESSES,
    OWN_FILES,
    OWN_SPACE,
    OWN_ENVIRONMENT,
    OWN_USER,
    SURFACE,
)
VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TERM",
    "PYTHON*",
    "VIRTUAL_ENV",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "*_NUM_THREADS",
)
"""The environment that children of the strict level see; * stands for any text."""


class Enclosure(StrEnum):
    """How a child gets namespaces of its own."""

    NONE = "none"
    """It gets none."""
    OWN_USER = "own user"
    """By root's rights; each child is then a user of its own."""
    USER_NAMESPACE = "user namespace"
    """Without rights, in a user namespace; the child is the supervisor's user."""


_OPTIONS = (WRITE, NETWORK)
"""Asked for by name, and not possible everywhere."""


def obstacles(measure: Measure, lacking: Mapping[Feature, str]) -> str:
    """Return why a measure cannot be in force here; "" if it can."""
    return "; ".join(
        lacking[feature] for feature in measure.needs if feature in lacking
    )


class Lockdown(msgspec.Struct, frozen=True, array_like=True):
    """How a child confines itself before any of the user's code runs in it."""

    no_new_privs: bool = False
    signals: bool = False
    syscalls: bool = False
    write: tuple[str, ...] | None = None
    """Where files may be written; None: wherever its user may."""
    network: bool = True
    nice: int = 0
    cpus: tuple[int, ...] | None = None
    """Cores to run on; None: the supervisor's."""
    enclosure: Enclosure = Enclosure.NONE
    """If not NONE, the measures of the strict level are in force."""
    read: tuple[str, ...] = ()
    """In an enclosure: paths visible besides programs and the application."""


class Gap(NamedTuple):
    """A measure that is wanted but not in force."""

    measure: Measure
    why: str


def plan(
    pool: PoolSettings, lacking: Mapping[Feature, str]
) -> tuple[Lockdown, tuple[Gap, ...]]:
    """Decide how a pool's children are confined on this machine.

    Args:
        pool: what is asked for.
        lacking: features that this machine does not offer, and why.

    Returns:
        The measures in force, and those of the level that cannot be.

    Raises:
        ConfigError: a measure that was asked for by name cannot be in force.
    """
    gaps = {gap.measure: gap for gap in _gaps(pool, lacking)}
    _refuse(pool, gaps)
    strict = pool.sandbox is SandboxLevel.STRICT
    level = pool.sandbox is not SandboxLevel.OFF
    lockdown = Lockdown(
        no_new_privs=_is_wanted(NO_NEW_PRIVS, pool, lacking)
        and NO_NEW_PRIVS not in gaps,
        signals=level and SIGNALS not in gaps,
        syscalls=level and SYSCALLS not in gaps,
        write=(pool.write or ()) if strict else pool.write,
        network=pool.network,
        nice=pool.nice,
        cpus=pool.cpus,
        enclosure=_enclosure(lacking) if strict else Enclosure.NONE,
        read=pool.read or (),
    )
    return lockdown, tuple(gaps.values())


def variables(pool: PoolSettings) -> tuple[str, ...] | None:
    """Return the names of the variables that children see; None: all.

    A ``*`` in a name stands for any text.
    """
    if pool.sandbox is SandboxLevel.STRICT:
        return (*VARIABLES, *(pool.env or ()))
    return pool.env


def _refuse(pool: PoolSettings, gaps: Mapping[Measure, Gap]) -> None:
    """Refuse what was asked for by name and cannot be in force."""
    strict = pool.sandbox is SandboxLevel.STRICT
    if strict and pool.new_privileges:
        raise ConfigError(
            f"pool {pool.name}: new_privileges = true contradicts sandbox = strict; "
            "leave one of them out"
        )
    if pool.read is not None and not strict:
        raise ConfigError(
            f"pool {pool.name}: read = [paths] is for sandbox = strict; at level "
            f"{pool.sandbox} all files can be read: leave it out"
        )
    by_name = [gap for gap in gaps.values() if strict or gap.measure in _OPTIONS]
    if by_name:
        raise ConfigError(
            f"pool {pool.name}: "
            + "; ".join(
                f"{_asked(gap.measure)} is not possible here: {gap.why}"
                for gap in by_name
            )
            + ". Leave it out, or run where it is possible (see: jobpool manual "
            "isolation)"
        )


def _asked(measure: Measure) -> str:
    """Return what asks for a measure."""
    if measure in _OPTIONS:
        return measure.asked_by
    return f"{measure.name!r} of sandbox = strict"


def _enclosure(lacking: Mapping[Feature, str]) -> Enclosure:
    if Feature.ADMIN in lacking:
        return Enclosure.USER_NAMESPACE
    return Enclosure.OWN_USER


def _gaps(pool: PoolSettings, lacking: Mapping[Feature, str]) -> Iterator[Gap]:
    unprivileged = pool.new_privileges and Feature.ADMIN in lacking
    for measure in MEASURES:
        if not _is_wanted(measure, pool, lacking):
            continue
        why = obstacles(measure, lacking)
        if not why and unprivileged and measure.needs:
            why = "with new_privileges = true it needs CAP_SYS_ADMIN, which is missing"
        if why:
            yield Gap(measure, why)


def _is_wanted(
    measure: Measure, pool: PoolSettings, lacking: Mapping[Feature, str]
) -> bool:
    """Return whether the level or an option of the pool asks for a measure."""
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
    if measure.asked_by == SandboxLevel.STRICT:
        # Without privileges, children run as the supervisor's user.
        can_be = measure is not OWN_USER or Feature.ADMIN not in lacking
        return pool.sandbox is SandboxLevel.STRICT and can_be
    return pool.sandbox is not SandboxLevel.OFF
