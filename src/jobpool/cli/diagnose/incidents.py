"""What `status` says of incidents."""

from __future__ import annotations

from collections.abc import Sequence

from jobpool.cli.output import heading, print_line
from jobpool.monitoring.alerts.catalogue import RULES
from jobpool.store.records.alerts import Incident
from jobpool.words.figures import seconds


def print_open(incidents: Sequence[Incident], now_ms: int) -> None:
    """Print what is wrong, each with what to read; nothing if nothing is."""
    if not incidents:
        return
    heading("INCIDENTS")
    for one in incidents:
        rule = RULES.get(one.rule)
        print_line(
            one.summary,
            f"for {seconds((now_ms - one.opened_at_ms) / 1000)}",
            "jobpool alerts" if rule is None else rule.runbook,
        )
