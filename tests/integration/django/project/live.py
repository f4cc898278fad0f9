"""Enqueues beside a supervisor, waits for the ends, and prints what came of it.

It prints a line of JSON for each case: its name, and what is known of its result.
"""

import json
import sys
import time

import django

django.setup()

from django.core.management import call_command
from shop import tasks
from shop.compat import TaskResultDoesNotExist, task_backends
from shop.models import Order

PATIENCE_S = 60
FIELDS = (
    *("id", "status", "args", "kwargs", "attempts", "worker_ids", "backend"),
    *("enqueued_at", "started_at", "last_attempted_at", "finished_at"),
)


def ended(result):
    """Wait until a task has ended."""
    late = time.monotonic() + PATIENCE_S
    while not result.is_finished:
        if time.monotonic() > late:
            sys.exit(f"has not ended: {result}")
        time.sleep(0.05)
        result.refresh()
    return result


def facts(result):
    ended(result)
    found = {name: getattr(result, name) for name in FIELDS}
    errors = [(one.exception_class.__name__, one.traceback) for one in result.errors]
    return found | {"value": result._return_value, "errors": errors}


def of_id(result_id):
    """Return what is known of what a task has enqueued; None: it does not exist."""
    try:
        return facts(task_backends["default"].get_result(result_id))
    except TaskResultDoesNotExist:
        return None


def tell(case, found):
    print(json.dumps({"case": case} | (found or {"gone": True}), default=str))


call_command("migrate", run_syncdb=True, verbosity=0)
ORDER = Order.objects.create()
ENQUEUED = {
    "pay": tasks.pay.enqueue(ORDER.pk, card="a card", vendor="v"),
    "count": tasks.count_orders.enqueue(),
    "fail": tasks.fail.enqueue("out of stock"),
    "hang": tasks.hang.enqueue(),
    "die": tasks.die.enqueue(),
    "lambda": tasks.return_a_lambda.enqueue(),
    "letter": tasks.send.enqueue("you"),
    "position": tasks.by_position.enqueue(1, 2, 3, third=4, more=5),
    "at once": tasks.pay_at_once.enqueue(ORDER.pk),
    "later": tasks.pay_later.enqueue(ORDER.pk),
    "committed": tasks.order_and_pay.enqueue(fails=False),
    "rolled back": tasks.order_and_pay.enqueue(fails=True),
}
for case, result in ENQUEUED.items():
    tell(case, facts(result))
    if case in {"at once", "later", "committed", "rolled back"}:
        value = result._return_value
        tell(f"of {case}", of_id(value) if value else None)
tell("paid by", {"paid_by": Order.objects.get(pk=ORDER.pk).paid_by})
tell("leaves", facts(tasks.leave_a_transaction_open.enqueue()))
for n in range(3):
    tell(f"clean {n}", facts(tasks.is_clean.enqueue()))
