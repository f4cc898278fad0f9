"""Arguments in the user's editor: of one job, or of several by their ids."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from jobpool.core.safe_text import one_line
from jobpool.errors import ArgumentsRejected, UsageError

T = TypeVar("T")
JOBS_MAX = 1000
"""Most jobs whose arguments are edited at once."""
_COMMENT = "#"


def editable(payloads: Mapping[int, bytes]) -> str:
    """Return arguments as indented JSON; of several jobs, an object by their ids."""
    if len(payloads) == 1:
        (whole,) = payloads.values()
    else:
        raw = {str(job_id): msgspec.Raw(one) for job_id, one in payloads.items()}
        whole = msgspec.json.encode(raw)
    return msgspec.json.format(whole, indent=2).decode() + "\n"


def read_edited(text: str, payloads: Mapping[int, bytes]) -> dict[int, str]:
    """Return the arguments of each job from the text of the editor.

    Args:
        text: as left by the user. Jobs that are not in it any more are left out.
        payloads: as for `editable`.

    Raises:
        ArgumentsRejected: it is not such a text.
    """
    if len(payloads) == 1:
        return dict.fromkeys(payloads, text)
    try:
        found = msgspec.json.decode(text.encode(), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as exc:
        raise ArgumentsRejected(
            f"expected a JSON object with the arguments of each job by its id: {exc}"
        ) from exc
    known = {str(job_id): job_id for job_id in payloads}
    if strange := next((name for name in found if name not in known), None):
        raise ArgumentsRejected(
            f"{strange[:60]!r} is the id of none of the jobs to be replayed"
        )
    return {known[name]: bytes(raw).decode() for name, raw in found.items()}


def edit_until(text: str, accept: Callable[[str], T]) -> T:
    """Open the user's editor, again if what was written is not accepted.

    The error then stands above the text.

    Args:
        text: to begin with.
        accept: returns what the text means, or raises UsageError.

    Raises:
        UsageError: nothing was changed; or the text is not accepted, and nobody wants
            to edit it again: it is kept in a file.
    """
    shown = text
    while True:
        # Not shown to a shell: $VISUAL or $EDITOR, with a file that only we can read.
        saved = click.edit(shown, extension=".json")
        written = None if saved is None else _without_comments(saved)
        if written is None or written == text:
            raise UsageError("nothing was changed in the editor; nothing was replayed")
        try:
            return accept(written)
        except UsageError as exc:
            said = one_line(str(exc))
            click.echo(f"Error: {said}", err=True)
            if not sys.stdin.isatty() or not _again():
                raise UsageError(
                    f"nothing was replayed; what you wrote is in {_keep(written)}"
                ) from None
            shown = f"{_COMMENT} {said}\n{written}"


def _again() -> bool:
    return click.confirm("Edit it again?", default=True, err=True)


def _keep(text: str) -> str:
    """Store a text where only this user can read it; return the path."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="jobpool-", suffix=".json", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    return str(Path(file.name))


def _without_comments(text: str) -> str:
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith(_COMMENT):
        del lines[0]
    return "".join(lines)
