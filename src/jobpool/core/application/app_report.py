"""What an application is, as its zygote reports it to the supervisor."""

from __future__ import annotations

import msgspec

from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.rules.quotas.definition import Quota
from jobpool.core.rules.schedules.schedule import Declared


class AppReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a zygote found when it loaded the application."""

    handlers: tuple[HandlerSpec, ...] = ()
    schedules: tuple[Declared, ...] = ()
    quotas: tuple[Quota, ...] = ()
    """As declared: `jobs.quota`. Kinds' own caps are not among them."""
    store: str | None = None
    """The store URL that the application itself names, if any."""
    version: str = ""
    """A hash of the source files that make up the application."""
    base_rss_bytes: int = 0
    """Resident memory of the zygote after loading: the minimum of every limit."""
    warnings: tuple[str, ...] = ()
    """Reported by `jobpool check`: threads, sockets opened while importing."""
