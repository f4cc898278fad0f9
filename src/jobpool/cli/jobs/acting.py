"""Carries out an action as the user of this shell, and says how far it comes."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import click

from jobpool.cli.terminal.lasting import lasting
from jobpool.errors import JobpoolError
from jobpool.operations.action import Action, Done
from jobpool.operations.operate import operate
from jobpool.operations.principal import local_principal
from jobpool.operations.queue import Enqueue
from jobpool.store.protocol import Store


def operating(store: Store, action: Action, done: Done | None = None) -> Done:
    """Carry out an action; an end before its time says what was done and what not.

    Args:
        store: where the jobs are.
        action: what to do.
        done: filled in as it goes.

    Raises:
        JobpoolError: as of `operate`.
    """
    done = Done() if done is None else done
    principal = local_principal(f"jobpool {action.name}")
    try:
        with _bar(action, done):
            return operate(store, principal, action, done)
    except (JobpoolError, KeyboardInterrupt):
        # To enqueue again would store the first jobs twice; their ids are printed.
        if done.jobs and not isinstance(action, Enqueue):
            of = f" of {done.matched}" if done.matched and not done.is_counting else ""
            click.echo(
                f"note: it ended early: {done.jobs}{of} jobs were changed, the others "
                "are as they were; give the same command again to go on",
                err=True,
            )
        raise


def _bar(action: Action, done: Done) -> AbstractContextManager[None]:
    """Show how far it is; not while somebody may be typing the jobs."""
    if isinstance(action, Enqueue) and sys.stdin.isatty():
        return nullcontext()
    return lasting(action.name, partial(_far, action, done))


def _far(action: Action, done: Done) -> tuple[int, int | None]:
    """Return how many jobs were changed, and of how many, if that is known before."""
    is_open = done.is_counting or isinstance(action, Enqueue)
    return done.jobs, None if is_open else done.matched or None
