"""The reader of a chaos run's account misses no row, however late it is committed."""

import pytest

from chaos import audit
from chaos.audit import Auditor, Change

OLD, NEW = ("runnable", None, None, 0, 0), ("succeeded", None, None, 1, 0)


def made(seq, job):
    return Change(seq, 0, job, *(None,) * 5, *OLD, None, None)


def ended(seq, job):
    return Change(seq, 0, job, *OLD, *NEW, "succeeded", "cpu/0")


class Place:
    """A database whose rows appear in another order than that of their numbers."""

    def __init__(self):
        self.rows = []

    def observe(self):
        return self

    def close(self):
        """Connections need no end here."""

    def read_audit(self, _connection, after):
        return sorted(row for row in self.rows if row.seq > after)


@pytest.fixture
def place():
    return Place()


@pytest.fixture
def now(monkeypatch):
    """Return a list whose only element is the present time."""
    at_s = [100.0]
    monkeypatch.setattr(audit.time, "monotonic", lambda: at_s[0])
    return at_s


def test_a_row_that_is_committed_late_is_read_and_counted(place, now):
    """Its transaction's supervisor was stopped, and others have written thousands."""
    auditor = Auditor(place)
    place.rows = [made(1, 1), *(made(seq, seq) for seq in range(3, 5000))]
    auditor.catch_up()
    now[0] += 8
    place.rows += [ended(2, 1), *(ended(5000 + seq, seq) for seq in range(3, 5000))]
    for _again in range(3):
        auditor.read(place)
        now[0] += 1
    assert auditor.unfinished == 0
    assert sorted(auditor.changes) == sorted(place.rows)


def test_what_was_read_long_ago_is_not_read_again(place, now):
    """Else each reading would take longer than the one before."""
    asked = []
    auditor = Auditor(place)
    place.rows = [made(seq, seq) for seq in range(1, 100)]
    auditor.read(place)
    now[0] += audit.LATE_S + 1
    auditor.read(place)
    place.read_audit = lambda _connection, after: asked.append(after) or []
    auditor.read(place)
    assert asked == [99]


def test_the_last_reading_misses_nothing(place, now):
    """However late it has come."""
    auditor = Auditor(place)
    place.rows = [made(seq, seq) for seq in range(2, 1000)]
    for _again in range(3):
        auditor.read(place)
        now[0] += 2 * audit.LATE_S
    place.rows.append(made(1, 1))
    auditor.catch_up()
    assert sorted(auditor.changes) == sorted(place.rows)
    assert auditor.unfinished == len(place.rows)
