"""What attempts do with permits: ask, hold, return, end with them, hear of limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jobpool.sandbox.protocol.messages import (
    AskPermit,
    BlockBucket,
    PermitAnswered,
    RequestEnded,
    ReturnPermit,
)
from support.store.history import Held, Returned

if TYPE_CHECKING:
    from jobpool.sandbox.protocol.messages import RunJob
    from simulation.host import Tree

DOWN_S = 4.0
PERMITS = 3
"""So many an attempt takes, one after the other."""


def answered(tree: Tree, frame: PermitAnswered) -> None:
    """An answer has arrived in a child."""
    act = tree.waits.pop(frame.n, None)
    if act is not None and tree.alive and not tree.frozen:
        act(frame.granted)


def ask(
    tree: Tree,
    frame: RunJob,
    n: int,
    bucket: tuple[str, str],
    act: Callable[[bool], None],
) -> None:
    """Ask for a permit, and do something with the answer."""
    quota, value = bucket

    def heard(granted: bool) -> None:
        world = tree.world
        world.sometimes[f"a permit was {'granted' if granted else 'refused'}"] += 1
        if granted:
            world.note(
                Held(at_s=world.kernel.now_s, job=frame.id, token=frame.token, n=n)
            )
        act(granted)

    tree.waits[n] = heard
    tree.send(AskPermit(frame.token, n, quota, value, 1, None))


def give_back(tree: Tree, frame: RunJob, n: int) -> None:
    """Return a permit, or give up waiting for it."""
    if tree.waits.pop(n, None) is None:
        now_s = tree.world.kernel.now_s
        tree.world.note(Returned(at_s=now_s, job=frame.id, token=frame.token, n=n))
    tree.send(ReturnPermit(frame.token, n))


def request_ended(tree: Tree, frame: RunJob, bucket: tuple[str, str]) -> None:
    """Say how a request has ended: the service is down every other few seconds."""
    failed = bool(tree.world.kernel.now_s // DOWN_S % 2)
    tree.send(RequestEnded(frame.token, *bucket, failed))


def tell(tree: Tree, frame: RunJob, bucket: tuple[str, str], after_s: float) -> None:
    """Say that nobody may go on with a bucket for a while."""
    tree.send(BlockBucket(frame.token, *bucket, after_s))
