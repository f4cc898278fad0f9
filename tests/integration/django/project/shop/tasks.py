import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction

from shop.compat import signals, task
from shop.letters import send
from shop.models import Order

__all__ = ["send"]


def note(sender, task_result, **_more):
    """Leave a line that tells which signals a task's process has sent."""
    line = f"{sender.__name__} {task_result.id} {task_result.status}\n"
    with Path(settings.SITE, "signals").open("a") as file:
        file.write(line)


for one in (signals.task_started, signals.task_finished):
    one.connect(note, weak=False)


@task(takes_context=True, queue_name="cpu", quotas=["vendor"], redact=["card"])
def pay(context, order, *, card="-", vendor="acme"):
    result = context.task_result
    Order.objects.filter(pk=order).update(paid_by=card)
    return {
        "attempt": context.attempt,
        "id": result.id,
        "args": result.args,
        "kwargs": result.kwargs,
        "status": result.status,
    }


@task
async def count_orders():
    return await Order.objects.acount()


@task(max_attempts=2, retry={"ValueError": ["1ms"]})
def fail(text):
    raise ValueError(text)


@task
def hang():
    time.sleep(60)


@task
def die():
    os.kill(os.getpid(), signal.SIGKILL)


@task
def return_a_lambda():
    return lambda: 1


@task
def leave_a_transaction_open():
    transaction.set_autocommit(False)
    Order.objects.create(paid_by="nobody")


@task
def is_clean():
    """Say what is open before the first query of an attempt, and after it."""
    before = connection.connection is not None, connection.in_atomic_block
    return [*before, Order.objects.filter(paid_by="nobody").exists()]


@task
def order_and_pay(fails):
    """Enqueue within a transaction of its own."""
    with suppress(ZeroDivisionError), transaction.atomic():
        order = Order.objects.create()
        result = pay.enqueue(order.pk)
        _ = 1 / (not fails)
    return result.id


@task
def pay_later(order):
    """Enqueue once its transaction has committed."""
    found = []
    with transaction.atomic():
        transaction.on_commit(lambda: found.append(pay.enqueue(order).id))
    return found[0]


@task
def pay_at_once(order):
    return pay.enqueue(order).id


@task
def by_position(first, /, second=2, *rest, third=3, **more):
    return [first, second, rest, third, more]


slow_pay = pay.using(priority=-10)
