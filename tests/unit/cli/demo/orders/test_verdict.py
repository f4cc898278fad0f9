"""Whether the accounts of the shop find what is wrong."""

import pytest

from jobpool.cli.demo.orders.verdict import Entry, account
from jobpool.core.jobs.flow import FlowState
from support.store.flow_rows import NOW_MS, flow_row

SHIPPED = ("charged", "reserved", "invoiced", "shipped", "mailed")
REFUNDED = ("charged", "reserved", "invoiced", "refunded")


def order(number, state):
    return flow_row(
        id=100 + number, key=str(number), state=state, finished_at_ms=NOW_MS
    )


def entries(number, *whats):
    cents = {"charged": 500, "refunded": -500}
    return [Entry(number, what, cents.get(what, 0)) for what in whats]


ORDERS = [
    order(1, FlowState.SUCCEEDED),
    order(2, FlowState.FAILED),
    order(3, FlowState.FAILED),
]
LEDGER = [*entries(1, *SHIPPED), *entries(2, *REFUNDED)]


def test_every_order_has_its_fate():
    """What was shipped is earned, what was refunded is not."""
    found = account(ORDERS, LEDGER, placed=3)
    assert found.problems == []
    assert found.earned_cents == 500
    assert {fate: [row.id for row in rows] for fate, rows in found.orders.items()} == {
        "shipped": [101],
        "refunded": [102],
        "not approved": [103],
    }


@pytest.mark.parametrize(
    ("orders", "ledger", "problem"),
    [
        (ORDERS[1:], LEDGER[5:], "orders [1] have no flow"),
        ([*ORDERS, order(4, FlowState.FAILED)], LEDGER, "orders [4] were never placed"),
        (ORDERS, [*LEDGER, Entry(9, "charged", 5)], "orders [9] were never placed"),
        (ORDERS, LEDGER[:-1], "order 2 is failed and was charged, reserved, invoiced"),
        (
            ORDERS,
            [*LEDGER, *entries(2, "shipped")],
            "order 2 is failed and was charged, reserved, invoiced, refunded, shipped",
        ),
        (
            [order(1, FlowState.OPEN), *ORDERS[1:]],
            LEDGER,
            "order 1 is open and was charged, reserved, invoiced, shipped, mailed",
        ),
        (ORDERS, LEDGER[5:], "order 1 is succeeded and was nothing"),
    ],
)
def test_what_is_lost_invented_or_half_done_is_a_problem(orders, ledger, problem):
    """Money that was taken and never given back is the worst of them."""
    assert account(orders, ledger, placed=3).problems == [problem]
