"""The tables of options: each one's place in a file, its reader and its formatter.

Everything that reads or lists configuration uses these tables, so that flags,
environment, files, `check` and ``conf/jobpool.toml`` cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jobpool.core.config import readers as read
from jobpool.core.config.settings import (
    MAX_ATTEMPTS_MAX,
    RETENTION_COUNT_MAX,
    Fair,
    KeepOutput,
    MemoryAdmission,
    SandboxLevel,
    ScaleOn,
    Scope,
)
from jobpool.core.rules.admission import OnFull
from jobpool.core.rules.quotas.breaker import parse_breaker, show_breaker
from jobpool.core.rules.quotas.budget import parse_budget, show_budget
from jobpool.core.rules.quotas.definition import COUNT_MAX, parse_weight
from jobpool.core.rules.quotas.rate import parse_rate
from jobpool.core.rules.quotas.shares import parse_aging, show_aging
from jobpool.core.units import duration_s, show_duration, show_size, size_bytes


class Option(NamedTuple):
    """One option that can be set."""

    read: read.Reader
    show: Callable[[Any], str] = str


_DURATION = Option(read.duration, show_duration)
_DURATION_OR_ZERO = Option(duration_s, show_duration)
_SIZE = Option(size_bytes, show_size)
_DURATION_OR_NONE = Option(
    read.or_none(read.duration), read.show_or(show_duration, "none")
)
_SIZE_OR_NONE = Option(read.or_none(size_bytes), read.show_or(show_size, "none"))
_KEPT = Option(
    read.or_none(duration_s, "forever"), read.show_or(show_duration, "forever")
)
_TEXT = Option(read.text)
_FLAG = Option(read.flag, read.show_flag)
_KEEP_OUTPUT = Option(read.one_of(KeepOutput))
_BREAKER = Option(read.whole(0, 10**6))
_PERMITS = Option(read.whole(1, COUNT_MAX))
_RATE = Option(parse_rate)
_WEIGHT = Option(parse_weight, "{:g}".format)
_RETRY_BUDGET = Option(parse_budget, show_budget)
_PATHS = Option(
    read.paths, read.show_or(lambda paths: ", ".join(paths) or "nowhere", "all")
)

_DEPTH_MAX = 10**12
_DEPTH = Option(read.whole(0, _DEPTH_MAX))

TOP: Mapping[str, Option] = {
    "store": _TEXT,
    "app": _TEXT,
    "app_version": Option(
        read.or_none(read.version, "auto"), read.show_or(str, "auto")
    ),
    "payload_max": Option(read.sendable, show_size),
    "result_max": Option(read.sendable, show_size),
    "queue_depth_max": Option(read.whole(1, _DEPTH_MAX)),
    "memory_budget": _SIZE_OR_NONE,
    "memory_admission": Option(read.one_of(MemoryAdmission)),
    "app_timeout": _DURATION,
    "lease_ttl": _DURATION,
    "probation": _DURATION,
    "unknown_for": _DURATION,
}
"""Options at the top of a file."""

ALIAS = "queue_depth_max"
"""The former name of ``[admission] depth_max``."""
CLIENT = ("store", "payload_max", "result_max")
"""Those that clients use as well; see `settings.ClientSettings`."""

ADMISSION: Mapping[str, Option] = {
    "depth_max": TOP[ALIAS],
    "age_max": _DURATION_OR_NONE,
    "on_full": Option(read.one_of(OnFull)),
}
"""Options of ``[admission]``, which clients use as well."""

BOUND: Mapping[str, Option] = {"depth_max": _DEPTH, "age_max": _DURATION}
"""How many jobs of a kind, a pool or a tenant may wait, and for how long."""

POOL: Mapping[str, Option] = {
    "size": Option(read.pool_size),
    "memory": _SIZE,
    "memory_max": _SIZE_OR_NONE,
    "memory_soft": Option(
        read.or_none(read.soft_size), read.show_or(read.show_soft, "none")
    ),
    "timeout": _DURATION,
    "timeout_max": _DURATION_OR_NONE,
    "soft_timeout": _DURATION_OR_NONE,
    "heartbeat_timeout": _DURATION_OR_NONE,
    "recycle": Option(read.whole(1, 10**9)),
    "recycle_age": _DURATION,
    "recycle_growth": _SIZE,
    "drain": _DURATION_OR_ZERO,
    "preload": _FLAG,
    "sandbox": Option(read.one_of(SandboxLevel)),
    "write": _PATHS,
    "read": _PATHS,
    "network": _FLAG,
    "new_privileges": _FLAG,
    "env": Option(read.names, read.show_or(", ".join, "all")),
    "nice": Option(read.whole(0, read.NICE_MAX)),
    "cpus": Option(
        read.cores, read.show_or(lambda cores: ",".join(map(str, cores)), "all")
    ),
    "max_processes": Option(
        read.or_none(read.whole(16, read.PROCESSES_MAX), "auto"),
        read.show_or(str, "auto"),
    ),
    "idle_shrink": _DURATION,
    "scale_on": Option(read.one_of(ScaleOn)),
    "age_target": _DURATION,
    "output_max": _SIZE,
    "keep_output": _KEEP_OUTPUT,
    "fair": Option(read.one_of(Fair)),
    "aging": Option(read.or_none(parse_aging), read.show_or(show_aging, "none")),
    "breaker_after": _BREAKER,
    "depth_max": Option(read.or_none(_DEPTH.read), read.show_or(str, "none")),
    "age_max": _DURATION_OR_NONE,
}
"""Options of ``[pools.NAME]``."""

KIND: Mapping[str, Option] = {
    "timeout": _DURATION,
    "soft_timeout": _DURATION,
    "memory": _SIZE,
    "memory_soft": Option(read.soft_size, read.show_soft),
    "memory_growth": Option(read.growth_factor, "{:g}".format),
    "heartbeat_timeout": _DURATION,
    "max_attempts": Option(read.whole(1, MAX_ATTEMPTS_MAX)),
    "max_crashes": Option(read.whole(1, MAX_ATTEMPTS_MAX)),
    "breaker_after": _BREAKER,
    "keep_output": _KEEP_OUTPUT,
    "concurrency": _PERMITS,
    "weight": _WEIGHT,
    "retry_budget": _RETRY_BUDGET,
    **BOUND,
}
"""Options of ``[kinds."NAME"]``; they override the decorator's."""

QUOTA: Mapping[str, Option] = {
    "rate": _RATE,
    "burst": _PERMITS,
    "concurrency": _PERMITS,
    "scope": Option(read.one_of(Scope)),
    "wait": _DURATION_OR_ZERO,
    "throttle_max": _DURATION,
    "breaker": Option(parse_breaker, show_breaker),
    "retry_budget": _RETRY_BUDGET,
}
"""Options of ``[quotas.NAME]``; they override what the application declares."""

COMMAND: Mapping[str, Option] = {
    "argv": Option(read.argv, read.show_argv),
    "pool": _TEXT,
    "stdin": _TEXT,
    "exit_codes": Option(
        read.by_name((str,), 'a table such as {65 = "dead", "70-79" = "retry"}'),
        read.show_by_name,
    ),
    "defaults": Option(
        read.by_name((str, int, float), "a table such as {dpi = 300}"),
        read.show_by_name,
    ),
    # Its values may be secret.
    "env": Option(
        read.by_name((str,), 'a table such as {LANG = "C.UTF-8"}'), ", ".join
    ),
    "cwd": _TEXT,
    "result": _SIZE,
}
"""Options of ``[commands.KIND]``; its limits are those of ``[kinds.KIND]``."""

TENANT: Mapping[str, Option] = {
    "concurrency": _PERMITS,
    "rate": _RATE,
    "burst": _PERMITS,
    "weight": _WEIGHT,
    **BOUND,
}
"""Options of ``[tenants.NAME]``."""

RETRIES: Mapping[str, Option] = {
    "budget": Option(read.or_none(parse_budget), read.show_or(show_budget, "none"))
}
"""Options of ``[retries]``."""

METRICS: Mapping[str, Option] = {
    "listen": Option(read.or_none(read.address), read.show_or(str, "none"))
}
"""Options of ``[metrics]``."""

TRACES: Mapping[str, Option] = {
    "otlp": Option(read.or_none(read.http_url), read.show_or(str, "none")),
    "sample": Option(read.share, "{:g}".format),
    "link": Option(read.or_none(read.trace_link), read.show_or(str, "none")),
}
"""Options of ``[traces]``."""

_URL_OR_NONE = Option(read.or_none(read.url), read.show_or(read.show_url, "none"))
_MANY = 10**9
_COUNT_OR_NONE = Option(read.or_none(read.whole(1, _MANY)), read.show_or(str, "none"))

ALERTS: Mapping[str, Option] = {
    "watch": Option(
        read.or_none(read.flag, "auto"), read.show_or(read.show_flag, "auto")
    ),
    "webhook": _URL_OR_NONE,
    "secret_file": Option(read.or_none(read.text), read.show_or(str, "none")),
    "allow_private": _FLAG,
    "command": Option(read.or_none(read.argv), read.show_or(read.show_argv, "none")),
    "heartbeat_url": _URL_OR_NONE,
    "digest": Option(
        read.or_none(read.time_of_day), read.show_or(read.show_time_of_day, "none")
    ),
    "store": _DURATION_OR_NONE,
    "no_supervisor": _DURATION_OR_NONE,
    "oldest_age": _DURATION_OR_NONE,
    "depth": _COUNT_OR_NONE,
    "dead": _COUNT_OR_NONE,
    "quarantined": _COUNT_OR_NONE,
    "failure_rate": Option(
        read.or_none(read.growth_factor), read.show_or("{:g}".format, "none")
    ),
    "ratio": Option(read.or_none(read.share), read.show_or("{:g}".format, "none")),
    "missed_ticks": _DURATION_OR_NONE,
    "stuck_flows": _DURATION_OR_NONE,
}
"""Options of ``[alerts]``: whom to tell, and from when on; "none": not at all."""
SENTRY: Mapping[str, Option] = {
    "dsn": Option(read.or_none(read.dsn), read.show_or(read.show_dsn, "none")),
    "each": _FLAG,
    "monitors": _FLAG,
}
"""Options of ``[sentry]``."""
SECRET = frozenset({"webhook", "command", "heartbeat_url", "dsn"})
"""Those whose values may hold a secret: only what is shown of them is ever listed."""

SECTIONS: Mapping[str, Mapping[str, Option]] = {
    "admission": ADMISSION,
    "retries": RETRIES,
    "metrics": METRICS,
    "traces": TRACES,
    "alerts": ALERTS,
    "sentry": SENTRY,
}
"""Tables of a file that hold options and nothing else."""

KEPT: Mapping[str, Option] = {
    "age": _KEPT,
    "count": Option(
        read.or_none(read.whole(1, RETENTION_COUNT_MAX)),
        read.show_or("{:,}".format, "none"),
    ),
}
"""Options of each state in ``[retention]``."""

RETENTION: Mapping[str, Mapping[str, Option]] = {
    **dict.fromkeys(("succeeded", "canceled", "dead", "quarantined"), KEPT),
    "audit": {"age": _KEPT},
    "outputs": {"size": _SIZE},
}
"""Options of ``[retention]``; a value by itself is the first of them."""

_IN_FILES_ONLY = {"size", "env", "write", "read", "cpus", *BOUND}
"""Not settable by variables: their values have commas, as the pools' grammar does; or
they would be taken for those of the whole queue."""

ENVIRONMENT: Mapping[str, str] = {
    **{f"JOBPOOL_{key.upper()}": key for key in TOP},
    **{f"JOBPOOL_{key.upper()}": key for key in POOL if key not in _IN_FILES_ONLY},
    "JOBPOOL_POOLS": "size",
}
"""Variables, and the option that each sets; options of `POOL` for every pool."""
