"""The store is away: whoever watches tells it, though nothing can be noted."""

import msgspec
import pytest

from jobpool.core.events.alerts import AlertNotSent
from jobpool.core.rules.admission import Admission
from jobpool.errors import StoreUnavailable
from jobpool.monitoring.alerts.away import AGAIN_S
from jobpool.store.memory.store import MemoryStore

SILENT = "it does not answer"


class Line:
    """A way to the store, which can be cut."""

    def __init__(self, database, clock, run_root):
        self.why = ""
        self._made = (database, clock, run_root)

    def __call__(self):
        """Open the store."""
        self.ask()
        database, clock, run_root = self._made
        line = self

        class Distant(MemoryStore):
            def watch(self):
                line.ask()
                return super().watch()

        return Distant(database, clock=clock, admission=Admission(), run_root=run_root)

    def ask(self):
        if self.why:
            raise StoreUnavailable(self.why)


@pytest.fixture
def line(database, clock, tmp_path):
    return Line(database, clock, tmp_path / "jobs.run")


def pass_time(clock, *watchers, seconds):
    for _ in range(seconds // 5):
        clock.advance(5.0)
        for one in watchers:
            one.once()


def told(ear):
    return [msgspec.json.decode(body) for _, body in ear.heard]


def test_a_store_that_is_away_is_told_once_with_its_reason_and_once_when_it_is_back(
    clock, watcher, ear, line, store
):
    one = watcher(line)
    one.once()
    line.why = SILENT
    pass_time(clock, one, seconds=60)
    assert ear.heard == []
    pass_time(clock, one, seconds=300)
    (opened,) = told(ear)
    assert opened["text"].startswith("the store cannot be used for 1m0")
    assert opened["text"].endswith(f": {SILENT}")
    assert (opened["event"], opened["rule"], opened["severity"]) == (
        *("opened", "store"),
        "page",
    )
    assert opened["runbook"] == "jobpool manual alerts#store"
    assert opened["queue"] == store.url
    line.why = ""
    pass_time(clock, one, seconds=60)
    _, ended = told(ear)
    assert (ended["event"], ended["id"]) == (
        "ended",
        opened["id"].replace("opened", "ended"),
    )
    assert ended["ended_at"] > ended["opened_at"] == opened["opened_at"]


def test_a_short_outage_wakes_nobody(clock, watcher, ear, line):
    one = watcher(line)
    for _ in range(5):
        one.once()
        line.why = SILENT
        pass_time(clock, one, seconds=55)
        line.why = ""
        pass_time(clock, one, seconds=5)
    assert ear.heard == []


def test_all_who_watch_tell_it_by_one_name(clock, watcher, ear, line):
    """Nobody can be asked who has told it; who drops what it has seen hears it once."""
    many = [watcher(line) for _ in range(3)]
    for one in many:
        one.once()
    line.why = SILENT
    pass_time(clock, *many, seconds=120)
    assert len(ear.heard) == 3
    assert len(set(ear.names)) == 1
    # Another outage is another incident.
    line.why = ""
    pass_time(clock, *many, seconds=60)
    line.why = SILENT
    pass_time(clock, *many, seconds=120)
    assert len(set(ear.names)) == 3


def test_what_is_not_taken_is_sent_again_after_a_while(
    clock, watcher, ear, line, events
):
    one = watcher(line)
    one.once()
    ear.refuses = "503"
    line.why = SILENT
    pass_time(clock, one, seconds=60 + 2 * int(AGAIN_S))
    refused = [event for event in events if isinstance(event, AlertNotSent)]
    assert [event.again_in_s for event in refused] == [AGAIN_S] * 2
    ear.refuses = ""
    pass_time(clock, one, seconds=int(AGAIN_S))
    assert [one["event"] for one in told(ear)] == ["opened"]


def test_who_has_not_heard_that_it_is_away_is_not_told_that_it_is_back(
    clock, watcher, ear, line
):
    one = watcher(line)
    one.once()
    ear.refuses = "503"
    line.why = SILENT
    pass_time(clock, one, seconds=90)
    ear.refuses = line.why = ""
    pass_time(clock, one, seconds=90)
    assert ear.heard == []


def test_the_rule_can_be_switched_off(clock, watcher, ear, line):
    one = watcher(line, store_s=None)
    one.once()
    line.why = SILENT
    pass_time(clock, one, seconds=600)
    assert ear.heard == []
