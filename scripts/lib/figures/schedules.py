"""Schedules: what it costs to compute their times."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime

from figures.ground import Ground
from jobpool.core.rules.schedules.rule import Rule, between, check_rule

SCHEDULES = 1000
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")


def year_of_ticks(_ground: Ground, _options: argparse.Namespace) -> dict[str, object]:
    """A year of 1,000 daily schedules, each at another minute, in four zones."""
    begin, end = (
        round(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1000)
        for year in (2026, 2027)
    )
    rules = [
        check_rule(
            Rule(cron=f"{n % 60} {n % 24} * * *", tz=ZONES[n // 24 % len(ZONES)])
        )
        for n in range(SCHEDULES)
    ]
    began_s = time.process_time()
    ticks = sum(1 for rule in rules for _ in between(rule, begin, end))
    took_s = time.process_time() - began_s
    return {f"{ticks:,} ticks of daily schedules, computed, CPU s": round(took_s, 1)}
