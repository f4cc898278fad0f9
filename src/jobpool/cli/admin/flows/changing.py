"""`jobpool flows cancel`, `pause`, `resume`, `retry` and `approve`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from jobpool.cli.admin.flows.meaning import meant
from jobpool.cli.context import opened, own_sources
from jobpool.cli.flags import FlowName, JobName, json_flag, note_flag, store_flags
from jobpool.cli.jobs.acting import operating
from jobpool.cli.jobs.selection import id_of
from jobpool.cli.output import print_json, print_line
from jobpool.operations.action import Action
from jobpool.operations.flows import (
    Approve,
    CancelFlow,
    PauseFlow,
    ResumeFlow,
    RetryFlow,
)
from jobpool.store.protocol import Store

C = TypeVar("C", bound=Callable[..., Any])


def _of_one(command: C) -> C:
    """Give a command its flow and what all of them have."""
    for option in (
        json_flag,
        store_flags,
        note_flag,
        click.argument("flow", metavar="FLOW", type=FlowName()),
    ):
        command = option(command)
    return command


@click.command("cancel")
@_of_one
def cancel_flow(**given: Any) -> None:
    """Cancel what has not ended in a flow.

    What runs is asked to stop, and nothing more begins, except the hooks for failures
    and for the flow's end.
    """
    _change(_plainly(CancelFlow), "canceled", **given)


@click.command("pause")
@_of_one
def pause_flow(**given: Any) -> None:
    """Let nothing more of a flow begin; what runs goes on."""
    _change(_plainly(PauseFlow), "paused", **given)


@click.command("resume")
@_of_one
def resume_flow(**given: Any) -> None:
    """Undo the pause of a flow."""
    _change(_plainly(ResumeFlow), "resumed", **given)


@click.command("retry")
@click.option(
    "--job",
    "jobs",
    metavar="JOB",
    type=JobName(),
    multiple=True,
    help="Of what failed, only this; the flow need not have ended. May be repeated.",
)
@_of_one
def retry_flow(*, jobs: tuple[int | str, ...], **given: Any) -> None:
    """Run again what failed in a flow, and all after it.

    The flow must have ended, unless --job says which of its failed jobs to run again.
    What succeeded before keeps its results. Hooks run again at the new end.
    """

    def act(found: Store, flow: int, note: str | None) -> RetryFlow:
        ids = tuple(id_of(found, job) for job in jobs)
        return RetryFlow(flow=flow, jobs=ids, note=note)

    _change(act, "retried", **given)


@click.command("approve")
@click.argument("job", metavar="JOB", type=JobName())
@click.option(
    "--result", metavar="JSON", help="What the steps after it get. Default: null."
)
@note_flag
@store_flags
@json_flag
def approve(
    *,
    job: int | str,
    result: str | None,
    note: str | None,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """End a step that waits for an approval.

    `jobpool flows show` names its JOB.
    """
    encoded = _as_json(result)
    with opened(own_sources(store, config)) as found:
        job_id = id_of(found, job)
        done = operating(found, Approve(job=job_id, result=encoded, note=note))
    if as_json:
        print_json({"job": job_id, "approved": True, "changed": done.is_made})
    else:
        print_line(f"job {job_id} approved", "" if done.is_made else "(no change)")


def _as_json(result: str | None) -> bytes | None:
    """Return a result as it is stored; None: none was given.

    Raises:
        UsageError: it is no JSON.
    """
    if result is None:
        return None
    try:
        return msgspec.json.encode(msgspec.json.decode(result))
    except (msgspec.DecodeError, RecursionError) as error:
        raise click.UsageError(
            f'--result: expected JSON, such as \'{{"by": "ann"}}\' or \'"yes"\': '
            f"{error}; nothing was approved"
        ) from error


def _plainly(
    action: type[CancelFlow | PauseFlow | ResumeFlow],
) -> Callable[[object, int, str | None], Action]:
    """Return how an action is made that says no more than its flow."""
    return lambda _, flow, note: action(flow=flow, note=note)


def _change(
    act: Callable[[Store, int, str | None], Action],
    past: str,
    *,
    flow: int | str,
    note: str | None,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    with opened(own_sources(store, config)) as found:
        number = meant(found, flow).row.id
        done = operating(found, act(found, number, note))
        row = meant(found, number).row
    if as_json:
        print_json(
            {"flow": number, past: True, "changed": done.is_made, "state": row.state}
        )
    elif done.is_made:
        print_line(f"flow {number} {past}")
    else:
        print_line("nothing changed", f"flow {number} is {row.state} already")
