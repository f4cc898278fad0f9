"""What is said of hosts and of the store, as supervisors see them. Pure."""

from __future__ import annotations

from jobpool.core.rules.run_report import HostReport, StoreReport
from jobpool.words.figures import size


def host_words(host: HostReport) -> tuple[str, ...]:
    """Return how busy a host is; empty texts say nothing."""
    pressures = [
        f"{name} {value:.0f} %"
        for name, value in (
            ("cpu", host.cpu_pressure),
            ("memory", host.memory_pressure),
            ("io", host.io_pressure),
        )
        if value is not None
    ]
    return (
        f"cpu {host.cpu_busy:.0%} busy".replace("%", " %"),
        f"pressure {', '.join(pressures)}" if pressures else "",
        f"{size(host.available_bytes)} free",
        f"swap {size(host.swap_used_bytes)}" if host.swap_used_bytes else "",
        "SWAPPING" if host.swapping else "",
    )


def store_words(store: StoreReport) -> tuple[str, ...]:
    """Return how the store fares; empty texts say nothing."""
    commits = "no commits lately"
    if store.commit_p50_ms is not None:
        commits = f"commits {store.commit_p50_ms:g} ms, P99 {store.commit_p99_ms:g} ms"
    return (
        commits,
        "" if store.lock_waits is None else f"{store.lock_waits} wait for locks",
        ""
        if store.connections is None
        else f"{store.connections} of {store.connections_max} connections",
    )
