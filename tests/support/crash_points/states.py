"""Which states of a database are legal around a crash, and whether it is in one.

The states of an operation come from an uninterrupted run: one before each of its steps,
and one after the last. After a crash a file must be in the state of what was
acknowledged or in the next one: the step in progress happened entirely or not at all.
Then that step is tried once more, as its caller would, and must lead to the same as
doing it once or twice without a crash.
"""

import atexit
import contextlib
import functools
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from support.crash_points.operations import OPERATIONS
from support.crash_points.preparations import (
    as_of_version,
    checkpoint_at_once,
    open_at,
    repeatable,
)

ABSENT = "no file"
_SHM = "jobs.db-shm"
_VARYING = tuple(
    f"b'{name}'"
    for name in ("overwritten", "ref_key_high", "ref_key_low", "limits_version")
)
"""A failed commit that was overwritten belongs to no state; the others are random."""


class Reference(NamedTuple):
    """What an operation does when it is not interrupted.

    Attributes:
        base: the prepared directory; to be copied.
        given: what its steps need.
        states: before the first step, and after each.
        answers: what each step returned.
        twice: the state after the steps up to this one, and this one once more.
        early: states in which opening may be interrupted.
    """

    base: Path
    given: Any
    states: tuple
    answers: tuple
    twice: tuple
    early: tuple


def read_state(directory):
    """Return everything that a database holds, or `ABSENT`.

    Raises:
        AssertionError: it is damaged.
    """
    path = directory / "jobs.db"
    if not path.exists():
        return ABSENT
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        verdict = connection.execute("PRAGMA integrity_check").fetchall()
        assert verdict == [(b"ok",)], f"integrity_check says {verdict[:3]}"
        return _everything(connection)


def _everything(connection):
    schema = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY 2"
    ).fetchall()
    tables = [name.decode() for kind, name, _ in schema if kind == b"table"]
    rows = {
        name: sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"')))  # noqa: S608 - a table that is there
        for name in tables
    }
    meta = [
        row
        for row in rows.get("jobpool_meta", [])
        if not any(name in row for name in _VARYING)
    ]
    return {"schema": list(map(repr, schema)), **rows, "jobpool_meta": meta}


@functools.cache
@repeatable()
def reference(name):
    """Return what an operation does; made once in a process."""
    operation = OPERATIONS[name]
    base = Path(tempfile.mkdtemp(prefix=f"base-{name}-", dir=work_root()))
    given = operation.prepare(base)
    early = tuple(_version_states(operation.versions, base))
    with copy_of(base) as directory:
        if not operation.opens:
            assert read_state(directory) is not ABSENT
        with contextlib.closing(_opened(operation, directory)) as store:
            states, answers = [read_state(directory)], []
            for step in operation.steps:
                answers.append(repr(step(store, given)))
                states.append(read_state(directory))
    twice = tuple(_twice(operation, base, given, k) for k in range(len(answers)))
    return Reference(base, given, tuple(states), tuple(answers), twice, early)


def _twice(operation, base, given, last):
    with copy_of(base) as directory:
        with contextlib.closing(_opened(operation, directory)) as store:
            for step in (*operation.steps[: last + 1], operation.steps[last]):
                step(store, given)
        return read_state(directory)


def _opened(operation, directory):
    store = open_at(directory)
    if operation.checkpoints:
        checkpoint_at_once(store)
    return store


def _version_states(versions, base):
    """Yield the states that a migration goes through."""
    with copy_of(base) as directory:
        for version in versions:
            if version == 0:
                yield from (ABSENT, {"schema": [], "jobpool_meta": []})
                continue
            with as_of_version(version):
                open_at(directory).close()
            yield read_state(directory)


@contextlib.contextmanager
def copy_of(base):
    """Copy a directory, without what is in shared memory; removed at the end."""
    with tempfile.TemporaryDirectory(dir=work_root()) as made:
        directory = Path(made) / "d"
        shutil.copytree(base, directory, ignore=_not_files)
        yield directory


def _not_files(_directory, names):
    return {name for name in names if name in {_SHM, "wake"}}


@functools.cache
def work_root():
    """Return where databases are made: in memory if there is such a place.

    Removed when the process ends that asked first; forks of it use the same one.
    """
    memory = Path("/dev/shm")
    root = memory if memory.is_dir() else Path(tempfile.gettempdir())
    made = Path(tempfile.mkdtemp(prefix="jobpool-crash-", dir=root))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@repeatable()
def judge(name, directory, done, *, surely_not=False):
    """Say what is wrong with a database after a crash; None: nothing.

    It is opened, the step that was on its way is tried again, and the rest is done.

    Args:
        name: the operation.
        directory: where the database is; it is changed.
        done: so many steps were acknowledged.
        surely_not: the next step is known not to have happened.
    """
    expected = reference(name)
    operation = OPERATIONS[name]
    early = expected.early if done == 0 else ()
    try:
        if early:
            found = read_state(directory)
            if found not in (*early, *expected.states[:2]):
                return f"after the crash: {differ(expected.states[0], found)}"
        with contextlib.closing(_opened(operation, directory)) as store:
            return _judge_open(name, store, directory, done, surely_not)
    except Exception as exc:  # noqa: BLE001 - whatever it is, it is the verdict
        return f"{type(exc).__name__} after the crash: {exc}"


def _judge_open(name, store, directory, done, surely_not):
    expected, operation = reference(name), OPERATIONS[name]
    found = read_state(directory)
    states = expected.states
    if found == states[done]:
        happened = False
    elif done + 1 < len(states) and found == states[done + 1] and not surely_not:
        happened = True
    else:
        return (
            f"after {done} acknowledged steps, not step {done}: "
            f"{differ(states[done], found)}"
        )
    for place in range(done, len(operation.steps)):
        answer = repr(operation.steps[place](store, expected.given))
        if happened:
            wanted = expected.twice[place]
        elif answer != expected.answers[place]:
            return f"step {place} tried again answered {answer[:200]}"
        else:
            wanted = states[place + 1]
        found = read_state(directory)
        if found != wanted:
            return f"step {place} tried again: {differ(wanted, found)}"
        if happened:
            return None  # What follows depends on its having been done once.
    return None


def differ(wanted, found):
    """Say in a line where two states differ first."""
    if ABSENT in (wanted, found):
        return f"expected {str(wanted)[:60]}, found {str(found)[:60]}"
    for table in sorted({*wanted, *found}):
        one, other = wanted.get(table, []), found.get(table, [])
        if one != other:
            gone = [row[:120] for row in one if row not in other][:2]
            new = [row[:120] for row in other if row not in one][:2]
            return f"{table}: missing {gone}, unexpected {new}"
    return "nothing differs"
