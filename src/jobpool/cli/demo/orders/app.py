"""A shop's orders: each is a flow, from the charge to the mail, or to the refund."""

import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from jobpool import JobPool

LEDGER = Path("ledger.db")
"""What has happened to each order: the shop's own database."""
LARGE_CENTS = 100_000
"""Somebody approves what costs more."""

jobs = JobPool()
carrier = jobs.quota("carrier", concurrency=2, rate="50/s")


@jobs.job("io", kind="orders.charge")
def charge(number: int, cents: int) -> str:
    """Take the money."""
    write(number, "charged", cents)
    return f"receipt {number}"


@jobs.job("io", kind="orders.reserve")
def reserve(number: int) -> None:
    """Put the goods aside."""
    write(number, "reserved")


@jobs.job("io", kind="orders.invoice")
def invoice(number: int, receipt: str) -> str:
    """Write the invoice, beside the reservation."""
    write(number, "invoiced")
    return f"invoice {number} for {receipt}"


@jobs.job("io", kind="orders.ship", quotas=[carrier], retry={"crashed": ["100ms"]})
def ship(number: int, address: str) -> str:
    """Hand it to the carrier, whose library does not survive all addresses."""
    if not address:
        os.abort()
    write(number, "shipped")
    return f"parcel {number}"


@jobs.job("io", kind="orders.mail")
def mail(number: int, parcel: str, invoice: str) -> None:
    """Tell the customer."""
    write(number, "mailed", note=f"{parcel}, {invoice}")


@jobs.job("io", kind="orders.refund")
def refund(number: int, receipt: str, cents: int) -> None:
    """Give the money back: shipping has failed, for whatever reason."""
    write(number, "refunded", -cents, receipt)


@jobs.cron("0 2 * * *", tz="Europe/Berlin")
@jobs.job("cpu", kind="orders.settle")
def settle() -> int:
    """Add up, at night, what the shop has earned."""
    with closing(sqlite3.connect(LEDGER)) as ledger:
        (cents,) = ledger.execute("SELECT sum(cents) FROM entries").fetchone()
        return int(cents or 0)


def place(number: int, cents: int, address: str, patience: str = "7d") -> str:
    """Take an order, once however often it is sent; return a ref to look it up by."""
    flow = jobs.flow("order", key=str(number))
    asked = [flow.wait_for("approval", timeout=patience)] if cents > LARGE_CENTS else []
    paid = flow.add(charge.call(number, cents), after=asked)
    reserved = flow.add(reserve.call(number), after=paid)
    invoiced = flow.add(invoice.call(number, paid.value))
    shipped = flow.add(ship.call(number, address), after=[reserved, invoiced])
    flow.add(mail.call(number, shipped.value, invoiced.value))
    flow.add(refund.call(number, paid.value, cents), after=shipped, when="failed")
    return flow.enqueue().ref


def write(number: int, what: str, cents: int = 0, note: str = "") -> None:
    """Write what has happened, once however often a job runs."""
    time.sleep(0.05)  # as if a network lay between
    with closing(sqlite3.connect(LEDGER, timeout=30)) as ledger, ledger:
        ledger.execute(
            "CREATE TABLE IF NOT EXISTS entries (number, what, cents, note, "
            "PRIMARY KEY (number, what))"
        )
        entry = (number, what, cents, note)
        ledger.execute("INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?)", entry)


if __name__ == "__main__":
    # Every seventh order is large, and every fifth has an address that kills.
    for number in range(1, int(sys.argv[1]) + 1):
        large = number % 7 == 0
        place(
            number,
            (LARGE_CENTS if large else 0) + number,
            "" if number % 5 == 0 else f"{number} High Street",
            *sys.argv[2:],
        )
