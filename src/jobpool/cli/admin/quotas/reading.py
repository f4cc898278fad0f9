"""`jobpool quotas NAME`: one quota, by bucket; and what the list reads."""

from __future__ import annotations

import click

from jobpool.cli.admin.quotas.records import (
    BUCKET_COLUMNS,
    BUCKET_RIGHT,
    bucket_cells,
    bucket_object,
    quota_object,
)
from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import json_flag, store_flags, unredacted_flag
from jobpool.cli.output import (
    encodable,
    heading,
    print_json,
    print_line,
    print_rows,
)
from jobpool.core.config.layers import nearest
from jobpool.core.rules.quotas.budget import counted_like
from jobpool.errors import UsageError
from jobpool.operations.redaction import Redactor
from jobpool.store.protocol import Store
from jobpool.store.records.quotas import QuotaRow
from jobpool.words.quotas import facts

_BUCKETS_MAX = 10_000


@click.command("show")
@click.argument("name")
@click.option(
    "--limit",
    type=click.IntRange(1, _BUCKETS_MAX),
    default=20,
    show_default=True,
    help="Show at most so many buckets: those first for which most jobs wait.",
)
@unredacted_flag
@store_flags
@json_flag
def show_quota(
    *,
    name: str,
    limit: int,
    unredacted: bool,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Show one quota: its numbers, who says them, and its buckets."""
    with opened(own_sources(store, config)) as found:
        row = existing(found, name)
        counted = row.quota or existing(found, counted_like(name)).quota
        kinds = found.kinds()
        costs = {
            record.kind: need.cost
            for record in kinds
            for need in record.needs
            if need.quota == name
        }
        redactor = Redactor(found, kinds, is_off=unredacted)
        buckets = redactor.buckets(found.buckets(name, limit), counted)
    now = now_ms()
    has_one = counted is not None and counted.per is None
    if as_json:
        whole = quota_object(row)
        whole["costs"] = costs
        whole["buckets"] = [bucket_object(bucket) for bucket in buckets]
        print_json(encodable(whole))
        return
    print_line(f"quota {name}")
    for what, text in facts(row, costs, now):
        if text:
            print_line(f"  {what:<10}{text}")
    if not buckets:
        return
    per = counted.per if counted else None
    heading("BUCKET" if has_one else "BUCKETS")
    columns = (per or "VALUE", *BUCKET_COLUMNS[1:])
    lines = [bucket_cells(bucket, now) for bucket in buckets]
    # A rate alone has no cap, and one bucket no value: no column of nothing but dashes.
    shown_at = [n for n in range(len(columns)) if any(x[n] is not None for x in lines)]
    print_rows(
        [columns[n] for n in shown_at],
        [[cells[n] for n in shown_at] for cells in lines],
        right=BUCKET_RIGHT,
        spare=("FREE",),
    )
    if len(buckets) == limit and not has_one:
        click.echo("note: there may be more buckets; --limit shows more", err=True)


def existing(store: Store, name: str) -> QuotaRow:
    """Return a quota.

    Raises:
        UsageError: there is none of this name.
    """
    rows = {row.name: row for row in store.quotas()}
    if name not in rows:
        raise UsageError(
            f"there is no quota {name[:200]!r} in {store.url}; {nearest(name, rows)}"
        )
    return rows[name]
