"""What `check`, `status` and `doctor` say of quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobpool.cli.jobs.quota_words import costs_words, numbers_words
from jobpool.cli.output import counted, heading, print_line, print_table
from jobpool.core.application.app_report import AppReport
from jobpool.core.rules.quotas.definition import Limits, Need, Quota, own_cap
from jobpool.store.records import QuotaRow

_SHOWN_MAX = 10


def differing(rows: Sequence[QuotaRow]) -> list[str]:
    """Return which quotas' definitions differ, where, and what that means."""
    return [row.differing for row in rows if row.differing]


def print_summary(rows: Sequence[QuotaRow]) -> None:
    """Print the quotas that jobs wait for, and those whose definitions differ."""
    waiting = sorted(
        (row for row in rows if row.waiting), key=lambda row: (-row.waiting, row.name)
    )
    remarks = differing(rows)
    if not waiting and not remarks:
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
    for remark in remarks:
        print_line(f"DIFFERENT: {remark}")


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


def declared(report: AppReport) -> tuple[Limits, dict[str, tuple[Need, ...]]]:
    """Return the quotas of an application, and what its kinds need of them."""
    quotas, needs = [*report.quotas], {}
    for spec in report.handlers:
        needs[spec.kind] = spec.needs
        if spec.concurrency is not None:
            quota, need = own_cap(spec.kind, spec.concurrency)
            quotas.append(quota)
            needs[spec.kind] += (need,)
    return Limits(quotas=tuple(quotas)), needs


def _costs(needs: Mapping[str, Sequence[Need]]) -> dict[str, dict[str, int]]:
    """Return by quota what a job of each kind takes of it."""
    found: dict[str, dict[str, int]] = {}
    for kind, its in needs.items():
        for need in its:
            found.setdefault(need.quota, {})[kind] = need.cost
    return found


def print_declared(limits: Limits, needs: Mapping[str, Sequence[Need]]) -> None:
    """Print the quotas that code and configuration define, and who needs them."""
    if limits.quotas:
        heading("QUOTAS")
        costs = _costs(needs)
        print_table(
            ("QUOTA", "LIMITS", "PER", "KINDS", "FROM"),
            (
                (
                    quota.name,
                    numbers_words(quota) or None,
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


def declared_objects(
    limits: Limits, needs: Mapping[str, Sequence[Need]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the same for ``--json``."""
    costs = _costs(needs)
    for quota in limits.quotas:
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
    for rule in limits.tenants:
        yield {
            "tenant": rule.name,
            "concurrency": rule.concurrency,
            "rate": None if rule.rate is None else str(rule.rate),
            "burst": rule.burst,
        }
