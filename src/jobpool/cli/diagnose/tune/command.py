"""`jobpool tune`: limits that fit what attempts have used, and what they change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from jobpool.cli.context import launch_directory, opened, own_sources
from jobpool.cli.diagnose.tune import edit
from jobpool.cli.diagnose.tune.words import print_advice
from jobpool.cli.flags import Name, json_flag, store_flags
from jobpool.cli.machine.resources import machine
from jobpool.cli.output import encodable, print_json, print_line
from jobpool.cli.terminal.lasting import lasting
from jobpool.core.config.load import Sources
from jobpool.core.config.pools import pools_of
from jobpool.core.rules.usage.sketch import WEEKS_KEPT
from jobpool.core.rules.usage.tuning import Proposal
from jobpool.words.figures import counted
from jobpool.words.tuning.advice import Advice, advice_of
from jobpool.words.tuning.reasons import changes_of


@click.command()
@click.option("--kind", type=Name("kind"), help="Only this kind.")
@click.option("--pool", type=Name("pool"), help="Only kinds in this pool.")
@click.option(
    "--weeks",
    type=click.IntRange(1, WEEKS_KEPT + 1),
    help="Only attempts of the last weeks; the present one is the first.",
)
@click.option(
    "--write",
    is_flag=True,
    help="Edit the configuration file: shows the diff, and asks.",
)
@click.option("--yes", is_flag=True, help="With --write: do not ask.")
@store_flags
@json_flag
def tune(
    *,
    kind: str | None,
    pool: str | None,
    weeks: int | None,
    write: bool,
    yes: bool,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Propose limits that fit what attempts have used.

    Shows by kind what was seen of memory and time, what limit would fit, and how many
    of those attempts it would have ended; kinds that leak, and kinds whose memory
    follows the size of their arguments. Changes nothing without --write.
    """
    if yes and not write:
        raise click.UsageError("--yes goes with --write")
    if write and as_json:
        raise click.UsageError("--write shows a diff; leave out --json")
    sources = own_sources(store, config)
    with lasting("read what was used"):
        advice = _advice(sources, kind=kind, pool=pool, weeks=weeks)
    if as_json:
        print_json(encodable(_object(advice)))
        return
    if not advice.kinds:
        only = any((kind, pool, weeks))
        print_line(
            "no attempt has been counted yet"
            + (" of what --kind, --pool or --weeks names" if only else ""),
            "supervisors write what attempts have used every 30 s, and when they end",
        )
        return
    print_advice(advice)
    click.echo()
    changes = changes_of(advice)
    if not changes:
        known = sum(one.is_known for one in advice.kinds)
        print_line(
            "all limits fit; there is nothing to change"
            if known == len(advice.kinds)
            else f"nothing to change: of {counted(len(advice.kinds), 'kind')}, "
            f"{known} {'is' if known == 1 else 'are'} known well enough to say so"
        )
    elif write:
        _write(sources, advice, is_agreed=yes)
    else:
        print_line(
            f"{counted(changes, 'limit')} would change",
            "`jobpool tune --write` shows the diff of the configuration, and asks",
        )


def _advice(
    sources: Sources, *, kind: str | None, pool: str | None, weeks: int | None
) -> Advice:
    """Read the store, and find what would fit."""
    pools = [
        one
        for one in pools_of(sources, machine(), {})
        if pool is None or one.name == pool
    ]
    with opened(sources) as found:
        rows = found.sketches(kind)
        newest = max((row.week for row in rows), default=0)
        return advice_of(
            (
                row
                for row in rows
                if (pool is None or row.pool == pool)
                and (weeks is None or row.week > newest - weeks)
            ),
            samples=found.samples(),
            kinds=found.kinds(),
            reports=found.run_reports(),
            pools=pools,
        )


def _write(sources: Sources, advice: Advice, *, is_agreed: bool) -> None:
    """Edit the configuration file, once somebody has agreed."""
    path = (
        Path(sources.file.path)
        if sources.file is not None
        else Path(launch_directory()) / edit.NEW_FILE
    )
    made = edit.draft(path, edit.edits_of(advice))
    if not made.diff:
        print_line(f"{path} says all this already; nothing was changed")
        return
    click.echo(made.diff)
    if not is_agreed:
        click.confirm(f"Write this to {path}?", abort=True, err=True)
    edit.write(made)
    print_line(
        f"{path} was written",
        "`jobpool check` shows what is in force; supervisors take it with SIGHUP",
    )


def _object(advice: Advice) -> dict[str, Any]:
    return {
        "kinds": [
            {
                "kind": one.kind,
                "pool": one.pool,
                "memory_bytes": _limit(one.memory),
                "time_s": _limit(one.time),
                "by_payload": msgspec.to_builtins(one.by_payload),
                "leak_bytes": one.leak_bytes,
            }
            for one in advice.kinds
        ],
        "pools": [msgspec.to_builtins(one) for one in advice.pools],
    }


def _limit(limit: Proposal) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(limit)
    return found
