"""`jobpool replay`: jobs that have ended, once more, with other arguments.

What would be done is worked out for every job, shown and counted, before anything is.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click
import msgspec

from jobpool.cli.context import opened, own_sources
from jobpool.cli.exits import Exit
from jobpool.cli.flags import (
    JobName,
    json_flag,
    note_flag,
    selection_flags,
    store_flags,
    unredacted_flag,
)
from jobpool.cli.jobs.acting import operating
from jobpool.cli.jobs.arguments.editing import (
    JOBS_MAX,
    edit_until,
    editable,
    read_edited,
)
from jobpool.cli.jobs.known_names import note_slips
from jobpool.cli.jobs.selection import chosen, id_of
from jobpool.cli.jobs.state_names import StateChoice
from jobpool.cli.output import print_json, print_line
from jobpool.client.payload.published.replacing import (
    Change,
    Replacing,
    Unchanged,
    arguments_of,
    each_its_own,
    kept,
    replaced_by,
    updated_with,
)
from jobpool.core.config.load import client_settings
from jobpool.core.jobs.job import Job
from jobpool.core.safe_text import one_line
from jobpool.errors import ArgumentsRejected
from jobpool.operations.action import Done
from jobpool.operations.arguments.changes import MISSING, differences
from jobpool.operations.arguments.replay import Replacement, Replay
from jobpool.operations.redaction import Redaction, Redactor
from jobpool.operations.selection import Selection
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter
from jobpool.store.records.runs import KindRecord
from jobpool.words.figures import counted
from jobpool.words.moments import rate_per_s

_SHOWN_JOBS = 10
_SHOWN_REMARKS = 20
_VALUE_MAX = 200
"""Most characters of a value in the preview."""


@click.command()
@click.argument("ids", nargs=-1, metavar="[IDS]...", type=JobName())
@click.option(
    "--args",
    "whole",
    metavar="JSON",
    help="The new arguments, all of them, as for jobpool enqueue.",
)
@click.option(
    "--set",
    "some",
    metavar="JSON",
    help="Change these arguments, by name; the others stay.",
)
@click.option("--edit", is_flag=True, help="Edit the arguments in $VISUAL or $EDITOR.")
@click.option("--kind-to", metavar="KIND", help="Make them jobs of this kind.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=StateChoice(Replay.states),
    help=f"May be repeated; default {', '.join(Replay.usual)}.",
)
@selection_flags
@click.option("--rate", metavar="RATE", help="No faster than this, such as 100/s.")
@click.option("--dry-run", is_flag=True, help="Show and count only; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@unredacted_flag
@note_flag
@store_flags
@json_flag
def replay(
    *,
    ids: tuple[int | str, ...],
    whole: str | None,
    some: str | None,
    edit: bool,
    kind_to: str | None,
    states: tuple[str, ...],
    rate: str | None,
    dry_run: bool,
    yes: bool,
    unredacted: bool,
    note: str | None,
    store: str | None,
    config: str | None,
    as_json: bool,
    **selection: str | None,
) -> None:
    """Replace jobs that have ended by new ones with other arguments.

    The new job has the key, priority, tenant and limits of the old one, which stays as
    it was and is not retried any more. The arguments are checked as by jobpool enqueue,
    and the differences shown, before anything is done.
    """
    if bool(ids) == (bool(states) or any(selection.values())):
        raise click.UsageError(
            "say which jobs: either their IDs, or filters such as --kind shop.pay "
            "--since 2h"
        )
    if sum((whole is not None, some is not None, edit)) > 1:
        raise click.UsageError("--args, --set and --edit exclude each other; give one")
    if whole is None and some is None and not (edit or kind_to):
        raise click.UsageError(
            "say what is to change: one of --args, --set and --edit, or --kind-to; to "
            "run jobs again as they are, use jobpool retry or release"
        )
    sources = own_sources(store, config)
    shown = states or Replay.usual
    with opened(sources) as found:
        named = tuple(id_of(found, one) for one in ids)
        which = None if ids else chosen(states=shown, **selection)
        meant = _Meant(
            Selection(ids=named, which=which, shown=() if ids else shown),
            kinds={record.kind: record for record in found.kinds()},
            kind_to=kind_to,
            note=note,
            per_s=rate_per_s(rate) if rate else None,
            payload_max_bytes=client_settings(sources).payload_max_bytes,
        )
        change, what = _change(whole, some)
        selected, refused = meant.action(None, change, what).select(found)
        if not ids and not selected:
            note_slips(found, sources, selection)
        if edit and selected:
            change, selected = _edited(found, meant, selected)
            what = "the edited arguments"
        action = meant.action(selected, change, what)
        redactor = Redactor(found, list(meant.kinds.values()), is_off=unredacted)
        preview = _Preview(found, action, selected, refused, redactor)
        if not as_json:
            preview.print()
        done = Done()
        if preview.ids and not dry_run:
            _confirm(len(preview.ids), is_agreed=yes)
            operating(found, meant.action(preview.ids, change, what), done)
            refused += done.refused
    _report(done, preview, refused, dry_run=dry_run, as_json=as_json)


class _Meant(NamedTuple):
    """Which jobs, and what is to become of them."""

    jobs: Selection
    kinds: Mapping[str, KindRecord]
    kind_to: str | None
    note: str | None
    per_s: float | None
    payload_max_bytes: int

    def action(self, ids: Sequence[int] | None, change: Change, what: str) -> Replay:
        """Return the action.

        Args:
            ids: those of the jobs that were looked at; None: all.
            change: what becomes of their arguments.
            what: where these come from.
        """
        replacing = Replacing(
            self.kinds,
            change,
            what,
            kind_to=self.kind_to,
            payload_max_bytes=self.payload_max_bytes,
        )
        return Replay(
            jobs=self.jobs,
            chosen=None if ids is None else tuple(ids),
            replace=replacing,
            kind_to=self.kind_to,
            per_s=self.per_s,
            note=self.note,
        )


def _change(whole: str | None, some: str | None) -> tuple[Change, str]:
    """Return what becomes of the arguments, and where that comes from."""
    if whole is not None:
        return replaced_by(whole), "--args"
    if some is not None:
        return updated_with(some, "--set"), "--set"
    return kept, "its arguments"


def _edited(
    store: Store, meant: _Meant, ids: Sequence[int]
) -> tuple[Change, list[int]]:
    """Let the user edit the arguments of jobs.

    Returns:
        What becomes of them, and the jobs that are to be replaced.

    Raises:
        UsageError: there are too many jobs; or nothing was changed, or not to what
            their kinds take.
    """
    if len(ids) > JOBS_MAX:
        raise click.UsageError(
            f"{len(ids):,} jobs are too many for an editor, which takes up to "
            f"{JOBS_MAX:,}; narrow the filter, or use --set"
        )
    payloads: dict[int, bytes] = {}
    for job in store.find(Filter(ids=tuple(ids)), len(ids))[::-1]:
        payloads[job.id] = store.payload(job.id) or b""
        try:
            arguments_of(job, payloads[job.id])
        except ArgumentsRejected as exc:
            raise ArgumentsRejected(f"job {job.id}: {exc}") from None

    def accept(text: str) -> tuple[Change, list[int]]:
        texts = read_edited(text, payloads)
        if meant.kind_to is None:
            texts = {
                job_id: given
                for job_id, given in texts.items()
                if _is_changed(given, payloads[job_id])
            }
        if not texts:
            raise Unchanged("no argument was changed")
        change = each_its_own(texts)
        refused: list[str] = []
        action = meant.action(list(texts), change, "arguments")
        list(action.planned(store, list(texts), refused))
        if refused:
            raise ArgumentsRejected("; ".join(refused[:_SHOWN_REMARKS]))
        return change, list(texts)

    return edit_until(editable(payloads), accept)


def _is_changed(text: str, payload: bytes) -> bool:
    """Say whether arguments differ; what is no JSON does."""
    try:
        return any(differences(msgspec.json.decode(payload), msgspec.json.decode(text)))
    except (msgspec.DecodeError, RecursionError):
        return True


class _Preview:
    """What would be done: the first jobs in full, all of them in numbers."""

    def __init__(
        self,
        store: Store,
        action: Replay,
        ids: Sequence[int],
        refused: list[str],
        redactor: Redactor,
    ) -> None:
        self.ids: list[int] = []
        self.paths: Counter[str] = Counter()
        self._lines: list[str] = []
        for job, replacement in action.planned(store, ids, refused):
            self.ids.append(job.id)
            self.paths.update(dict.fromkeys(replacement.changed, 1))
            if len(self.ids) <= _SHOWN_JOBS:
                payload = store.payload(job.id) or b"{}"
                redaction = redactor.of_change(job, payload, replacement.new)
                self._lines += _diff(job, payload, replacement, redaction)

    def print(self) -> None:
        """Print it."""
        for line in self._lines:
            print_line(line)
        if len(self.ids) > _SHOWN_JOBS:
            print_line(f"and {counted(len(self.ids) - _SHOWN_JOBS, 'more job')}")
        if len(self.ids) > 1:
            parts = [f"{path} {jobs}" for path, jobs in self.paths.most_common()]
            print_line(f"{counted(len(self.ids), 'job')} in all", *parts)


def _diff(
    job: Job, payload: bytes, replacement: Replacement, redaction: Redaction
) -> list[str]:
    new = replacement.new
    lines = [f"job {job.id}  {job.kind}  {job.shown_state}"]
    for name, old, now in (
        ("kind", job.kind, new.kind),
        ("pool", job.pool, new.pool),
    ):
        if old != now:
            lines += [f"  - {name}: {old}", f"  + {name}: {now}"]
    after = msgspec.json.decode(new.payload)
    for one in differences(arguments_of(job, payload), after):
        for sign, value in (("-", one.before), ("+", one.after)):
            if value is not MISSING:
                shown = redaction.value(value, one.steps)
                text = msgspec.json.encode(shown).decode()
                lines.append(f"  {sign} {one.path}: {one_line(text, _VALUE_MAX)}")
    return lines


def _confirm(jobs: int, *, is_agreed: bool) -> None:
    """Ask on a terminal.

    Raises:
        UsageError: nobody can be asked.
        Abort: the answer is no; nothing was changed.
    """
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            "nobody can be asked here; give --yes to replay, or --dry-run to look"
        )
    click.confirm(f"Replay {counted(jobs, 'job')}?", abort=True, err=True)


def _report(
    done: Done,
    preview: _Preview,
    refused: Sequence[str],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    matched = len(preview.ids)
    if as_json:
        print_json(
            {
                "replayed": done.jobs,
                "matched": matched,
                "dry_run": dry_run,
                "replaced_by": _named(done.replaced_by),
                "changed": dict(preview.paths),
                "refused": list(refused),
            }
        )
    elif dry_run:
        print_line(f"{counted(matched, 'job')} would be replayed")
    elif matched or not refused:
        for old_id, new_id in list(done.replaced_by.items())[:_SHOWN_JOBS]:
            print_line(f"job {old_id} is replaced by job {new_id}")
        print_line(f"{done.jobs} of {counted(matched, 'job')} replayed")
    for remark in refused[:_SHOWN_REMARKS]:
        click.echo(f"Error: {one_line(remark)}", err=True)
    if len(refused) > _SHOWN_REMARKS:
        more = counted(len(refused) - _SHOWN_REMARKS, "more job")
        click.echo(f"Error: and {more}, for such reasons; --json names all", err=True)
    if refused or (not dry_run and done.jobs < matched):
        raise click.exceptions.Exit(Exit.FAILED)


def _named(links: Mapping[int, int]) -> dict[str, int]:
    return {str(old_id): new_id for old_id, new_id in links.items()}
