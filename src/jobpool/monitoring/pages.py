"""What the fleet's server answers besides /metrics: what each pool needs, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

import msgspec

from jobpool.monitoring.metrics.fleet import FleetMetrics
from jobpool.monitoring.metrics.listen import Page
from jobpool.monitoring.scaling import Scaling

_SCALING = "/scaling/"


def pages_of(fleet: FleetMetrics) -> Callable[[str], Page | None]:
    """Return which page a path has.

    Args:
        fleet: has read the store.
    """

    def page(path: str) -> Page | None:
        if not path.startswith(_SCALING):
            return None
        pool = unquote(path.removeprefix(_SCALING))
        return lambda _environ, respond: _answer(fleet, pool, respond)

    return page


def _answer(
    fleet: FleetMetrics, pool: str, respond: Callable[..., Any]
) -> Iterable[bytes]:
    """Answer with what a pool needs: 0 for one that nobody knows, and not nothing.

    A store that cannot be read is an error, so that a scaler leaves things as they are.
    """
    found = fleet.scaling()
    if found is None:
        status, body = "503 Service Unavailable", {"error": "the store cannot be read"}
    else:
        status, body = "200 OK", msgspec.to_builtins(found.get(pool) or _nothing(pool))
    respond(status, [("Content-Type", "application/json")])
    return [msgspec.json.encode(body) + b"\n"]


def _nothing(pool: str) -> Scaling:
    return Scaling(pool=pool, wanted=0, running=0, due=0, slots=1, time_to_drain_s=0.0)
