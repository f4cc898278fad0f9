"""`jobpool demo orders`: a shop whose supervisor is killed, and its accounts."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from jobpool.cli.demo.orders.driver import Driven, drive, place_orders
from jobpool.cli.demo.orders.verdict import FATES
from jobpool.cli.demo.place import place_of
from jobpool.cli.demo.supervisor import processes_left
from jobpool.cli.demo.workspace import store_url
from jobpool.cli.exits import Exit
from jobpool.cli.output import console, print_table
from jobpool.core.clock import SystemClock
from jobpool.core.units import show_duration
from jobpool.sandbox.system.platform import require_linux

_ORDERS_MIN, _ORDERS_MAX = 14, 5_000
"""Below, not every fate of an order is seen."""
_CLOCK = SystemClock()


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Work in this empty directory, and keep it.",
)
@click.option(
    "--orders",
    "count",
    type=click.IntRange(_ORDERS_MIN, _ORDERS_MAX),
    default=70,
    show_default=True,
    help="Place so many orders.",
)
@click.option("--keep", is_flag=True, help="Keep the directory.")
def orders(*, directory: Path | None, count: int, keep: bool) -> None:
    """Watch a shop whose supervisor is killed, and which loses no order.

    Each order is a flow: charge, then reserve and invoice side by side, ship, mail. An
    address that kills the carrier's library ends in a refund, and a large sum waits for
    an approval. Midway the supervisor is killed, and another one goes on.
    """
    require_linux()
    with place_of(directory, keep=keep) as place:
        screen = Console(stderr=True, highlight=False)
        began_s = _CLOCK.monotonic_s()
        place_orders(place, count)
        screen.print(f"{place}: {count} orders placed", soft_wrap=True)
        driven = drive(place, screen, count)
        problems = _problems(driven, processes_left(place, _CLOCK))
        _print(driven, problems, _CLOCK.monotonic_s() - began_s)
        if keep or directory is not None or problems:
            where = f"{place}  (jobpool flows --store {store_url(place)})"
            console().print(f"kept: {where}", style="dim", soft_wrap=True)
        if problems:
            raise click.exceptions.Exit(Exit.FAILED)


def _problems(driven: Driven, left: list[int]) -> list[str]:
    found = driven.account
    problems = list(found.problems)
    if driven.settled_cents != found.earned_cents:
        problems.append(
            f"the settlement says {_money(driven.settled_cents)}, the ledger "
            f"{_money(found.earned_cents)}"
        )
    problems += [
        f"no order was {name}" for name, rows in found.orders.items() if not rows
    ]
    return problems + ([f"processes {left} still run"] if left else [])


def _print(driven: Driven, problems: list[str], seconds: float) -> None:
    screen, found = console(), driven.account
    print_table(
        ("FATE", "ORDERS", "FLOW", "WHAT HAPPENED", "SUCH AS"),
        [
            (
                fate.words,
                f"{len(rows):,}",
                fate.state,
                ", ".join(fate.happens) or "nothing",
                f"jobpool flows show {rows[0].id}" if rows else None,
            )
            for fate in FATES
            for rows in (found.orders[fate.words],)
        ],
        right=("ORDERS",),
    )
    screen.print(
        f"\nearned {_money(found.earned_cents)}, as the settlement says; took "
        f"{show_duration(seconds)}, with one supervisor killed while "
        f"{driven.killed_with:,} orders were open and {driven.held} jobs running"
    )
    for problem in problems:
        screen.print(f"NOT AS IT MUST BE: {problem}", style="bold red")
    if not problems:
        screen.print(
            "Every order is accounted for, once; nothing is left.", style="bold green"
        )


def _money(cents: int) -> str:
    return f"{cents / 100:,.2f}"
