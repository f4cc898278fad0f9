"""Makes `Settings` from layers of raw values, and records each one's origin. Pure.

Flags take precedence over ``JOBPOOL_*`` variables, these over the configuration file,
and that over the defaults. Nothing here reads a file, the environment or the machine.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jobpool.core.config import settings as st
from jobpool.core.config.admission import admission_of
from jobpool.core.config.file import ConfigFile
from jobpool.core.config.layers import Sourced, lookup
from jobpool.core.config.options import ALIAS, CLIENT, METRICS, RETENTION, RETRIES, TOP
from jobpool.core.config.pools import kinds_of, known_pools, pools_of
from jobpool.core.config.quotas import quotas_of, tenants_of
from jobpool.core.config.sources import (
    Machine,
    Sources,
    Value,
    field_of,
    read_sources,
    subject_of,
    top_value,
    value_of,
)
from jobpool.core.config.store_url import (
    base_directory,
    refuse_other_bytes,
    refuse_other_store,
    store_of,
    without_password,
)
from jobpool.core.units import show_duration
from jobpool.errors import ConfigError

__all__ = [
    "Configuration",
    "Machine",
    "Sources",
    "Value",
    "client_settings",
    "configure",
    "names_app",
    "read_sources",
    "refuse_other_store",
    "retention_of",
    "store_of",
    "top_value",
    "without_password",
]
_KEPT_BY = {"age": "{}_s", "count": "{}_count", "size": "{}_bytes"}
"""The field of `Retention` for each option."""
_PLAIN = [key for key in TOP if key not in ("store", "app", ALIAS)]


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, and their values as a list for people."""

    settings: st.Settings
    values: Mapping[str, Value]
    """By dotted name, ``pools.cpu.memory``, in display order."""
    file: ConfigFile | None


def client_settings(sources: Sources) -> st.ClientSettings:
    """Return the settings of clients, the same as a supervisor's of these sources.

    Raises:
        ConfigError: a value is wrong.
    """
    base = st.ClientSettings(store="")
    rest = {
        field_of(st.ClientSettings, key): top_value(
            sources, key, getattr(base, field_of(st.ClientSettings, key))
        ).value
        for key in CLIENT
        if key != "store"
    }
    return st.ClientSettings(
        store=store_of(sources).value,
        admission=admission_of(sources, {}),
        pool_names=known_pools(sources),
        **rest,
    )


def retention_of(sources: Sources) -> st.Retention:
    """Return how long finished jobs are kept, and how many.

    Raises:
        ConfigError: a value is wrong.
    """
    values = _retention(sources)
    return st.Retention(
        **{
            _KEPT_BY[key].format(name): values[_retention_name(name, key)].value
            for name, options in RETENTION.items()
            for key in options
        }
    )


def configure(
    sources: Sources, *, machine: Machine, has_jobs_file: bool
) -> Configuration:
    """Build the settings of a supervisor.

    Args:
        sources: the layers.
        machine: what this process may use.
        has_jobs_file: whether ``jobs.py`` exists in the launch directory.

    Raises:
        ConfigError: a value is wrong or contradicts another (the message says which,
            and its origin), or no application is named.
    """
    below: dict[str, Value] = {}
    pools = tuple(pools_of(sources, machine, below))
    kinds = dict(kinds_of(sources, below))
    quotas = dict(quotas_of(sources, below))
    tenants = dict(tenants_of(sources, below))
    values: dict[str, Value] = {
        "store": store_of(sources),
        "app": _app(sources, has_jobs_file=has_jobs_file),
    }
    base = st.Settings(store="", app="", app_directory="", pools=())
    for key in _PLAIN:
        default = getattr(base, field_of(st.Settings, key))
        if key == "memory_budget":
            default = int(st.MEMORY_BUDGET_SHARE * machine.memory_bytes)
        elif key == "app_version":
            default = "auto"
        values[key] = top_value(sources, key, default)
    admission = admission_of(sources, values)
    budget = value_of(sources.stack, ("retries", "budget"), RETRIES["budget"], "none")
    values["retries.budget"] = budget
    listen = value_of(sources.stack, ("metrics", "listen"), METRICS["listen"], "none")
    values["metrics.listen"] = listen
    values |= below
    for key, value in _retention(sources).items():
        values[f"retention.{key}"] = value
    _refuse_short_lease(values)
    refuse_other_bytes("app", values["app"].value)
    refuse_other_bytes("the launch directory", sources.directory)
    rest = {field_of(st.Settings, key): values[key].value for key in _PLAIN}
    settings = st.Settings(
        store=values["store"].value,
        app=values["app"].value,
        app_directory=sources.directory,
        store_base=base_directory(sources),
        pools=pools,
        pool_names=known_pools(sources),
        kinds=kinds,
        quotas=quotas,
        tenants=tenants,
        retry_budget=budget.value,
        metrics_listen=listen.value,
        kinds_shared=_is_shared(sources, has_jobs_file=has_jobs_file),
        admission=admission,
        retention=retention_of(sources),
        **rest,
    )
    return Configuration(settings=settings, values=values, file=sources.file)


def _refuse_short_lease(values: Mapping[str, Value]) -> None:
    """Refuse a lease that expires before a healthy supervisor can renew it.

    On one host no lease expires by time, so that any TTL will do.
    """
    ttl = values["lease_ttl"]
    on_one_host = values["store"].value.startswith("sqlite:")
    if not on_one_host and ttl.value < st.LEASE_TTL_MIN_S:
        raise ConfigError(
            f"{subject_of(ttl.origin)}: {ttl.shown} is out of range; expected at least "
            f"{show_duration(st.LEASE_TTL_MIN_S)} for a store that several hosts "
            "share: supervisors need that long to renew their leases"
        )


def names_app(sources: Sources, *, has_jobs_file: bool) -> bool:
    """Return whether the sources name an application."""
    return lookup(sources.stack, "app") is not None or has_jobs_file


def _app(sources: Sources, *, has_jobs_file: bool) -> Value:
    if names_app(sources, has_jobs_file=has_jobs_file):
        return top_value(sources, "app", "jobs.py")
    raise ConfigError(
        f"no application is named, and there is no jobs.py in {sources.directory}; use "
        "--app shop.jobs (a module or a file), set JOBPOOL_APP, or put "
        'app = "shop.jobs" into the configuration'
    )


def _is_shared(sources: Sources, *, has_jobs_file: bool) -> bool:
    """Return whether the configuration belongs to another application."""
    *_, file = sources.stack
    default = Sourced("jobs.py", "default") if has_jobs_file else None
    own, named = file.get(("app",), default), lookup(sources.stack, "app")
    return own is not None and named is not None and own.raw != named.raw


def _retention(sources: Sources) -> dict[str, Value]:
    """Return the values by name: ``dead`` is an age, ``dead.count`` a count."""
    default = st.Retention()
    found: dict[str, Value] = {}
    for name, options in RETENTION.items():
        for key, option in options.items():
            usual = getattr(default, _KEPT_BY[key].format(name))
            if usual is None:
                usual = option.show(None)
            found[_retention_name(name, key)] = value_of(
                sources.stack, ("retention", name, key), option, usual
            )
    return found


def _retention_name(name: str, key: str) -> str:
    return name if key == next(iter(RETENTION[name])) else f"{name}.{key}"
