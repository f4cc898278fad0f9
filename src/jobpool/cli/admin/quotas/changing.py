"""`jobpool quotas set` and `reset`: other numbers at run time."""

from __future__ import annotations

import click

from jobpool.cli.admin.quotas.reading import existing
from jobpool.cli.context import opened, own_sources
from jobpool.cli.flags import (
    force_flag,
    json_flag,
    note_flag,
    numbers_flags,
    store_flags,
)
from jobpool.cli.jobs.acting import operating
from jobpool.cli.jobs.known_names import check_known
from jobpool.cli.output import print_json, print_line
from jobpool.core.rules.quotas.rate import parse_rate
from jobpool.core.units import duration_s
from jobpool.operations.quotas import ResetQuota, SetQuota
from jobpool.words.quotas import numbers_words, window_words


@click.command("set")
@click.argument("name")
@numbers_flags
@click.option(
    "--for",
    "duration",
    metavar="TIME",
    help="They hold for so long: 2h. Default: until `quotas reset`.",
)
@force_flag
@note_flag
@store_flags
@json_flag
def set_quota(
    *,
    name: str,
    concurrency: int | None,
    rate: str | None,
    burst: int | None,
    duration: str | None,
    force: bool,
    note: str | None,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Give a quota other numbers, on all hosts within 2 s.

    They are above those of code and configuration. What is not named stays as it is.
    """
    if concurrency is None and rate is None and burst is None:
        raise click.UsageError(
            "say what to set: --rate 5/s, --burst 10 or --concurrency 4"
        )
    for_s = None if duration is None else duration_s(duration, "--for")
    if for_s == 0:
        raise click.UsageError("--for must be longer than 0, such as 2h")
    action = SetQuota(
        quota=name,
        rate=None if rate is None else parse_rate(rate, "--rate"),
        burst=burst,
        concurrency=concurrency,
        for_s=for_s,
        note=note,
    )
    sources = own_sources(store, config)
    with opened(sources) as found:
        if not force:
            check_known(found, sources, {"quota": [name]})
        changed = operating(found, action).is_made
        in_force = {row.name: row.quota for row in found.quotas()}.get(name)
    if as_json:
        print_json({**action.target(), "set": True, "changed": changed})
        return
    said = {"rate": rate, "burst": burst, "concurrency": concurrency}
    numbers = ", ".join(f"{what} {one}" for what, one in said.items() if one)
    until = f"for {duration}" if duration else "until: jobpool quotas reset"
    print_line(
        f"quota {name} set: {numbers}",
        f"{until} {'' if duration else name}".rstrip(),
        "" if changed else "(no change)",
    )
    if in_force is not None:
        what = (numbers_words(in_force), window_words(in_force))
        print_line(f"within 2 s: {': '.join(filter(None, what))}")


@click.command("reset")
@click.argument("name")
@note_flag
@store_flags
@json_flag
def reset_quota(
    *, name: str, note: str | None, store: str | None, config: str | None, as_json: bool
) -> None:
    """Undo `quotas set`, and let jobs begin again.

    Opens what is blocked, closes a breaker, and fills up the rate.
    Permits of jobs that run stay theirs.
    """
    with opened(own_sources(store, config)) as found:
        done = operating(found, ResetQuota(quota=name, note=note))
        if not done.is_made:
            # Only now: what was set may be of a quota that nobody declares any more.
            existing(found, name)
    if as_json:
        print_json({"quota": name, "reset": True, "changed": done.is_made})
    else:
        print_line(f"quota {name} reset", "" if done.is_made else "(no change)")
