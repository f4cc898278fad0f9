"""`jobpool metrics`: the gauges of the whole fleet for Prometheus, from one place."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import click

from jobpool.cli.context import own_sources
from jobpool.cli.flags import store_flags
from jobpool.cli.launch.alerts import watched
from jobpool.cli.output import print_line
from jobpool.core.config.load import alerts_of, client_settings
from jobpool.core.config.readers import address
from jobpool.core.event_lines import human_line
from jobpool.core.units import duration_s
from jobpool.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from jobpool.core.config.settings import ClientSettings
    from jobpool.core.events.event import Event
    from jobpool.store.protocol import Store

_LISTEN = "127.0.0.1:9465"


@click.command()
@click.option(
    "--listen",
    default=_LISTEN,
    metavar="ADDRESS",
    show_default=True,
    help="Where /metrics is served: an IP address and a port.",
)
@click.option(
    "--by-tenant",
    is_flag=True,
    help="Count jobs by tenant as well, for the hundred with the most jobs.",
)
@click.option(
    "--every",
    default="10s",
    metavar="TIME",
    show_default=True,
    help="How often to read the store.",
)
@click.option("--once", is_flag=True, help="Print the gauges once, and end.")
@store_flags
def metrics(
    *,
    listen: str,
    by_tenant: bool,
    every: str,
    once: bool,
    store: str | None,
    config: str | None,
) -> None:
    """Serve the gauges of the whole fleet to Prometheus.

    Run it in exactly one place: its gauges count all supervisors together, and two of
    it would count each job twice. Each supervisor serves its own counts: see `listen`
    under `[metrics]` in the configuration. With `[alerts]` it also watches the queue,
    and tells what is wrong, if no supervisor is left to do so: jobpool manual alerts.
    """
    place = address(listen, "--listen")
    every_s = max(1.0, duration_s(every, "--every"))
    sources = own_sources(store, config)
    settings, rules = client_settings(sources), alerts_of(sources)
    try:
        from jobpool.monitoring.metrics.fleet import FleetMetrics  # noqa: PLC0415 - an extra
        from jobpool.monitoring.metrics.listen import Listener  # noqa: PLC0415
        from jobpool.monitoring.pages import pages_of  # noqa: PLC0415
    except ImportError as exc:
        raise ConfigError(
            "metrics need prometheus-client: pip install 'jobpool[metrics]'"
        ) from exc
    fleet = FleetMetrics(
        lambda: _opened(settings), by_tenant=by_tenant, every_s=every_s
    )
    fleet.start()
    try:
        if once:
            _print(fleet)
            return
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        refused = threading.Event()

        def say(why: str) -> None:
            refused.set()
            print_line(f"cannot listen at {why}; trying again until it is free")

        def found(event: Event) -> None:
            print_line(human_line(event))

        pages = pages_of(fleet)
        with (
            Listener(place, (fleet,), refused=say, pages=pages) as listener,
            watched(settings, rules, found),
        ):
            while not listener.listening.wait(0.1):
                if ended.is_set():
                    return
            print_line(f"http://{place._replace(port=listener.port or 0)}/metrics")
            ended.wait()
    finally:
        fleet.close()


def _opened(settings: ClientSettings) -> Store:
    from jobpool.store.opening import open_store  # noqa: PLC0415 - not for --help

    return open_store(settings.store, create=False, admission=settings.admission)


def _print(fleet: Any) -> None:
    """Print the metrics once.

    Raises:
        StoreUnavailable: the store could not be read.
    """
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415

    fleet.tried.wait()
    registry = CollectorRegistry()
    registry.register(fleet)
    said = generate_latest(registry).decode()
    if fleet.error:
        raise StoreUnavailable(fleet.error)
    click.echo(said, nl=False)
