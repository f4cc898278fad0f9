"""What `check`, `status` and `doctor` say of quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jobpool.cli.output import heading, print_line, print_table
from jobpool.core.application.app_report import AppReport
from jobpool.core.config.quotas import needs_of, published_limits, remarks
from jobpool.core.config.settings import Settings
from jobpool.core.rules.quotas.breaker import BreakerState
from jobpool.core.rules.quotas.definition import Limits, Need, Quota
from jobpool.errors import ConfigError
from jobpool.store.records.quotas import BucketRow, QuotaRow
from jobpool.words.figures import counted
from jobpool.words.quotas import costs_words, numbers_words

_SHOWN_MAX = 10


def differing(told: Mapping[str, str]) -> list[str]:
    """Return which quotas' definitions differ, where, and what that means."""
    return [f"quota {name}: {said}" for name, said in sorted(told.items())]


def print_summary(rows: Sequence[QuotaRow], blocked: int) -> None:
    """Print the quotas that jobs wait for, and those whose definitions differ.

    Args:
        rows: all quotas.
        blocked: how many jobs wait for a permit, of a quota or of a tenant's rule.
    """
    waiting = sorted(
        (row for row in rows if row.waiting), key=lambda row: (-row.waiting, row.name)
    )
    if blocked and not waiting:
        one = "job is" if blocked == 1 else "jobs are"
        print_line(
            f"{blocked:,} {one} blocked by rules or pauses of tenants; "
            "which: jobpool show ID"
        )
    said = differing({row.name: row.differing for row in rows if row.differing})
    down = [row for row in rows if row.bucket is not None and _is_down(row.bucket)]
    if not waiting and not said and not down:
        return
    heading("QUOTAS")
    if waiting:
        print_table(
            ("QUOTA", "WAITING", "CLOSED", "LIMITS"),
            (
                (
                    row.name,
                    row.waiting,
                    counted(row.blocked, "bucket"),
                    _limits(row.quota),
                )
                for row in waiting[:_SHOWN_MAX]
            ),
            right=("WAITING",),
        )
        print_line(f"why and until when: jobpool quotas {waiting[0].name}")
    if len(waiting) > _SHOWN_MAX:
        print_line(f"and {len(waiting) - _SHOWN_MAX:,} more: jobpool quotas")
    for row in down:
        why = "" if row.bucket is None else row.bucket.reason
        print_line(f"OPEN: quota {row.name}: {why}", f"jobpool quotas {row.name}")
    for remark in said:
        print_line(f"DIFFERENT: {remark}")


def _is_down(bucket: BucketRow) -> bool:
    """Say whether its service fails, and is left alone or tried by one job."""
    found = bucket.service
    return found is not None and found.state is not BreakerState.CLOSED


def _limits(quota: Quota | None) -> str | None:
    if quota is None:
        return None
    per = "" if quota.per is None else f"for each {quota.per}"
    return " ".join(filter(None, (numbers_words(quota), per))) or None


def summary(rows: Sequence[QuotaRow]) -> list[Mapping[str, Any]]:
    """Return the same for ``--json``: all quotas."""
    return [
        {
            "quota": row.name,
            "waiting": row.waiting,
            "used": row.used,
            "closed_buckets": row.blocked,
            "differing": row.differing,
        }
        for row in rows
    ]


class Declared(NamedTuple):
    """What an application and its configuration say of quotas."""

    limits: Limits = Limits()
    needs: Mapping[str, Sequence[Need]] = {}
    """By kind."""
    remarks: Sequence[str] = ()
    """What is allowed, but surely not meant."""
    problems: Sequence[str] = ()
    """Why they cannot be kept."""


def declared(settings: Settings, report: AppReport) -> Declared:
    """Return what an application and its configuration say of quotas."""
    try:
        limits = published_limits(settings, report)
        notes = list(remarks(settings, report))
    except ConfigError as exc:
        return Declared(problems=[str(exc)])
    needs = {spec.kind: needs_of(settings, spec) for spec in report.handlers}
    return Declared(limits, needs, notes)


def _costs(needs: Mapping[str, Sequence[Need]]) -> dict[str, dict[str, int]]:
    """Return by quota what a job of each kind takes of it."""
    found: dict[str, dict[str, int]] = {}
    for kind, its in needs.items():
        for need in its:
            found.setdefault(need.quota, {})[kind] = need.cost
    return found


def print_declared(found: Declared) -> None:
    """Print the quotas that code and configuration define, and who needs them."""
    limits = found.limits
    if limits.quotas:
        heading("QUOTAS")
        costs = _costs(found.needs)
        print_table(
            ("QUOTA", "LIMITS", "PER", "KINDS", "FROM"),
            (
                (
                    quota.name,
                    numbers_words(quota) or "none: it lets all begin",
                    _per(quota),
                    costs_words(costs.get(quota.name, {})) or "permit() only",
                    quota.source,
                )
                for quota in limits.quotas
            ),
        )
    if limits.tenants:
        heading("TENANTS")
        print_table(
            ("TENANT", "LIMITS"),
            ((rule.name, numbers_words(rule) or None) for rule in limits.tenants),
        )


def _per(quota: Quota) -> str | None:
    return "host" if quota.host_only else quota.per


def declared_objects(found: Declared) -> Iterator[Mapping[str, Any]]:
    """Yield the same for ``--json``."""
    costs = _costs(found.needs)
    for quota in found.limits.quotas:
        yield {
            "quota": quota.name,
            "concurrency": quota.concurrency,
            "rate": None if quota.rate is None else str(quota.rate),
            "burst": quota.burst_in_force,
            "per": quota.per,
            "scope": "host" if quota.host_only else "fleet",
            "costs": costs.get(quota.name, {}),
            "from": quota.source,
        }
    for rule in found.limits.tenants:
        yield {
            "tenant": rule.name,
            "concurrency": rule.concurrency,
            "rate": None if rule.rate is None else str(rule.rate),
            "burst": rule.burst,
        }
