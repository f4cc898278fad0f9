"""Writes proposals into the configuration file, as a diff that somebody confirms.

The file is edited, not made anew: comments, order and line ends stay. It is replaced in
one step, and only if nobody has changed it meanwhile.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Iterable, MutableMapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jobpool.core.rules.usage.tuning import Proposal, Verdict
from jobpool.core.units import show_size
from jobpool.errors import ConfigError
from jobpool.words.tuning.advice import Advice

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

NEW_FILE = "jobpool.toml"
_PROJECT = "pyproject.toml"
_MINUTE_S = 60
_HOUR_S = 3600


class Edit(NamedTuple):
    """One value, and where it stands in the file."""

    tables: tuple[str, ...]
    key: str
    value: str | int


class Draft(NamedTuple):
    """The file as it would be."""

    path: Path
    before: str | None
    """None: there is no such file yet."""
    after: str

    @property
    def diff(self) -> str:
        """The change, as `diff -u` prints it."""
        before = (self.before or "").splitlines(keepends=True)
        after = self.after.splitlines(keepends=True)
        name = str(self.path)
        was = os.devnull if self.before is None else name
        return "".join(unified_diff(before, after, was, name))


def edits_of(advice: Advice) -> list[Edit]:
    """Return the proposals as values of the configuration."""
    edits = []
    for one in advice.kinds:
        table = ("kinds", one.kind)
        if (memory := _changed(one.memory)) is not None:
            edits.append(Edit(table, "memory", show_size(memory)))
        if (time_s := _changed(one.time)) is not None:
            edits.append(Edit(table, "timeout", _time_text(time_s)))
    edits += [
        Edit(("pools", one.pool), "recycle", one.recycle_proposed)
        for one in advice.pools
        if one.recycle_proposed is not None
    ]
    return edits


def draft(path: Path, edits: Iterable[Edit]) -> Draft:
    """Return the file with the edits in it; nothing is written.

    Raises:
        ConfigError: it cannot be read or has another shape, or tomlkit is not there.
    """
    try:
        import tomlkit  # noqa: PLC0415 - an extra, and only for this
        from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415
    except ImportError as exc:
        raise ConfigError(
            "--write edits TOML with tomlkit, which is not installed: pip install "
            "'jobpool[tune]'; nothing was changed"
        ) from exc
    try:
        before = _text(path)
    except FileNotFoundError:
        before = None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}; nothing was changed") from exc
    root = ("tool", "jobpool") if path.name == _PROJECT else ()
    try:
        document = tomlkit.parse(before or "")
        placed = [edit._replace(tables=(*root, *edit.tables)) for edit in edits]
        for edit in placed:
            _put(document, edit)
        after = _with_line_ends_of(before or "", tomlkit.dumps(document))
        _check(before or "", after, placed)
    except (TOMLKitError, TypeError, ValueError) as exc:
        raise ConfigError(
            f"{path} cannot be edited: {exc}; write the values yourself, as "
            "`jobpool tune` shows them; nothing was changed"
        ) from exc
    return Draft(path, before, after)


def write(made: Draft) -> None:
    """Replace the file.

    Raises:
        ConfigError: it was changed meanwhile, or cannot be written; it is as it was.
    """
    path = made.path
    target = path.resolve()
    try:
        now = _text(target) if target.exists() else None
        if now != made.before:
            raise ConfigError(
                f"{path} was changed meanwhile; give the command again to see the new "
                "diff; nothing was changed"
            )
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".jobpool-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(made.after.encode())
                file.flush()
                os.fsync(file.fileno())
            _give(Path(name), target)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be written: {exc}; nothing was changed"
        ) from exc


def _changed(limit: Proposal) -> float | None:
    """Return the proposed value of a limit that is to change; None: it stays."""
    changes = limit.verdict in (Verdict.LOWER, Verdict.RAISE)
    return limit.proposed if changes else None


def _time_text(time_s: float) -> str:
    """Return a rounded time as a configuration says it: ``45s``, ``3m``, ``2h``."""
    whole = round(time_s)
    for unit_s, unit in ((_HOUR_S, "h"), (_MINUTE_S, "m")):
        if whole % unit_s == 0:
            return f"{whole // unit_s}{unit}"
    return f"{whole}s"


def _give(new: Path, target: Path) -> None:
    """Let those read the new file who could read the old one: root may write it.

    Raises:
        OSError: it cannot have the same owner.
    """
    if not target.exists():
        new.chmod(0o644)
        return
    old, own = target.stat(), new.stat()
    if (old.st_uid, old.st_gid) != (own.st_uid, own.st_gid):
        os.chown(new, old.st_uid, old.st_gid)
    new.chmod(old.st_mode & 0o777)


def _text(path: Path) -> str:
    """Return a file's text with its own line ends."""
    return path.read_bytes().decode()


def _with_line_ends_of(before: str, after: str) -> str:
    """Return the text with CRLF alone, if the other one has nothing else."""
    crlf = "\r\n"
    if before.count("\n") != before.count(crlf) or crlf not in before:
        return after
    return after.replace(crlf, "\n").replace("\n", crlf)


def _put(document: TOMLDocument, edit: Edit) -> None:
    """Set a value, in a table that is made if it is missing.

    Raises:
        TypeError: something else than a table bears one of the names.
        ValueError: tomlkit can have no table at that place.
    """
    import tomlkit  # noqa: PLC0415 - see `draft`

    place: Any = document
    for depth, name in enumerate(edit.tables):
        if name not in place:
            is_last = depth == len(edit.tables) - 1
            place[name] = tomlkit.table(is_super_table=not is_last)
        place = place[name]
        if not isinstance(place, MutableMapping):
            raise TypeError(f"{'.'.join(edit.tables[: depth + 1])} is not a table")
    place[edit.key] = edit.value


def _check(before: str, after: str, edits: Sequence[Edit]) -> None:
    """Read the file as the configuration is read: nothing else may have changed.

    Raises:
        ValueError: something has, or it is no TOML any more.
    """
    wanted = tomllib.loads(before)
    for edit in edits:
        table = wanted
        for name in edit.tables:
            table = table.setdefault(name, {})
        table[edit.key] = edit.value
    if tomllib.loads(after) != wanted:
        raise ValueError("more than these values would change")
