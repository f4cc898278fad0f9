"""Makes `Settings` from layers of raw values, and records each one's origin. Pure.

Flags take precedence over ``JOBPOOL_*`` variables, these over the configuration file,
and that over the defaults. Nothing here reads a file, the environment or the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from jobpool.core.config import settings as st
from jobpool.core.config.admission import admission_of
from jobpool.core.config.file import ConfigFile
from jobpool.core.config.kinds import commands_of
from jobpool.core.config.layers import Sourced, lookup
from jobpool.core.config.options import (
    ALERTS,
    ALIAS,
    CLIENT,
    METRICS,
    RETENTION,
    RETRIES,
    SECRET,
    SENTRY,
    TOP,
    TRACES,
)
from jobpool.core.config.pools import kinds_of, known_pools, pools_of
from jobpool.core.config.quotas import quotas_of, tenants_of
from jobpool.core.config.sources import (
    DEFAULT,
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
    "alerts_of",
    "client_settings",
    "configure",
    "names_app",
    "read_sources",
    "refuse_other_store",
    "retention_of",
    "store_of",
    "top_value",
    "traces_of",
    "without_password",
]
COMMANDS_ONLY = "jobpool.client.jobpool:commands_only"
"""The application, if only the configuration declares handlers."""
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


def traces_of(sources: Sources) -> st.TraceLinks:
    """Return where people look at traces, and which there are.

    Raises:
        ConfigError: a value is wrong.
    """
    found = _traces(sources)
    is_sent = found["traces.otlp"].value is not None
    return st.TraceLinks(
        link=found["traces.link"].value,
        sample=found["traces.sample"].value if is_sent else 0.0,
    )


def _traces(sources: Sources) -> dict[str, Value]:
    usual = {"otlp": "none", "sample": 1.0, "link": "none"}
    return {
        f"traces.{key}": value_of(sources.stack, ("traces", key), option, usual[key])
        for key, option in TRACES.items()
    }


def alerts_of(sources: Sources) -> st.AlertSettings | None:
    """Return who is told when something is wrong, and when; None: nobody watches.

    Raises:
        ConfigError: a value is wrong, or contradicts another.
    """
    return _alerts(sources, {})


def _alerts(sources: Sources, values: dict[str, Value]) -> st.AlertSettings | None:
    """Read them, and add them to *values*; anything that is set turns watching on."""
    default = st.AlertSettings()
    found: dict[str, Value] = {}
    for key, option in ALERTS.items():
        usual: Any = "auto"
        if key != "watch":
            usual = getattr(default, field_of(st.AlertSettings, key))
            usual = "none" if usual is None else usual
        found[key] = value_of(sources.stack, ("alerts", key), option, usual)
    for key, value in found.items():
        # Whoever lists values must not list secrets.
        listed = value.shown if key in SECRET else value.value
        values[f"alerts.{key}"] = Value(listed, value.shown, value.origin)
    watch = found.pop("watch").value
    if watch is None:
        watch = any(path[0] == "alerts" for layer in sources.stack for path in layer)
    if not watch:
        return None
    settings = st.AlertSettings(
        **{field_of(st.AlertSettings, key): one.value for key, one in found.items()}
    )
    if settings.webhook is None and settings.secret_file is not None:
        raise ConfigError(
            f"{subject_of(found['secret_file'].origin)}: there is no webhook to sign; "
            'set webhook = "https://…" as well, or leave secret_file out'
        )
    if (
        settings.digest is not None
        and settings.webhook is None
        and (settings.command is None)
    ):
        raise ConfigError(
            f"{subject_of(found['digest'].origin)}: nobody would get the digest; set "
            "webhook or command as well"
        )
    return settings


def _sentry(sources: Sources, values: dict[str, Value]) -> st.SentrySettings | None:
    """Read what is reported to Sentry, and add it to *values*."""
    default = st.SentrySettings(dsn="")
    found = {
        key: value_of(
            sources.stack,
            ("sentry", key),
            option,
            "none" if key == "dsn" else getattr(default, key),
        )
        for key, option in SENTRY.items()
    }
    for key, value in found.items():
        listed = value.shown if key in SECRET else value.value
        values[f"sentry.{key}"] = Value(listed, value.shown, value.origin)
    if found["dsn"].value is None:
        return None
    return st.SentrySettings(**{key: one.value for key, one in found.items()})


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
    commands = tuple(commands_of(sources, below))
    quotas = dict(quotas_of(sources, below))
    tenants = dict(tenants_of(sources, below))
    values: dict[str, Value] = {
        "store": store_of(sources),
        "app": _app(sources, has_jobs_file=has_jobs_file, has_commands=bool(commands)),
    }
    base = st.Settings(store="", app="", app_directory="", pools=())
    for key in _PLAIN:
        default, origin = getattr(base, field_of(st.Settings, key)), DEFAULT
        if key == "memory_budget":
            default = int(st.MEMORY_BUDGET_SHARE * machine.memory_bytes)
            share = f"{100 * st.MEMORY_BUDGET_SHARE:.0f} %"
            origin = f"default ({share} of the memory here)"
        elif key == "app_version":
            default = "auto"
        values[key] = value_of(sources.stack, (key,), TOP[key], default, origin)
    admission = admission_of(sources, values)
    budget = value_of(sources.stack, ("retries", "budget"), RETRIES["budget"], "none")
    values["retries.budget"] = budget
    listen = value_of(sources.stack, ("metrics", "listen"), METRICS["listen"], "none")
    values["metrics.listen"] = listen
    values |= _traces(sources)
    alerts = _alerts(sources, values)
    sentry = _sentry(sources, values)
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
        commands=commands,
        quotas=quotas,
        tenants=tenants,
        retry_budget=budget.value,
        metrics_listen=listen.value,
        traces_link=values["traces.link"].value,
        traces_otlp=values["traces.otlp"].value,
        traces_sample=values["traces.sample"].value,
        alerts=alerts,
        sentry=sentry,
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


def _app(sources: Sources, *, has_jobs_file: bool, has_commands: bool) -> Value:
    if names_app(sources, has_jobs_file=has_jobs_file):
        return top_value(sources, "app", "jobs.py")
    if has_commands:
        return Value(COMMANDS_ONLY, COMMANDS_ONLY, "default, there are commands")
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
