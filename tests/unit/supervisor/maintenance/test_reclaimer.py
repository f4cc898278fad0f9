"""Which runs' jobs are taken over, and when; and what must stay leased."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from jobpool.core.clock import SystemClock
from jobpool.core.config.settings import Settings
from jobpool.core.event_lines import human_line
from jobpool.core.events.event import Event
from jobpool.core.events.figures import AttemptUnsuccessful
from jobpool.core.events.supervisor import Alarm
from jobpool.core.jobs.job import JobState, Lease, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.run_report import HostReport
from jobpool.core.rules.suspects import Deaths
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.runs import Run
from jobpool.supervisor.machine.state.usage import Usage
from jobpool.supervisor.maintenance import reclaimer as rc
from jobpool.supervisor.maintenance.death_proof import (
    Alive,
    DeadRun,
    Proof,
    Unproven,
)
from jobpool.supervisor.maintenance.housekeeping import Housekeeping
from jobpool.supervisor.maintenance.lost_jobs import reclaim
from jobpool.supervisor.maintenance.other_pools import OtherPools
from jobpool.supervisor.maintenance.ticking import Ticking
from jobpool.supervisor.storage.thread import StoreThread


def run_of(run_id: str = "theirs", **fields: object) -> Run:
    """Return a run."""
    facts = {"host": "h", "boot_id": "other", "pid": 1, "pid_namespace": 1}
    return Run(id=run_id, version="0", **(facts | fields))  # type: ignore[arg-type]


class FakeStore:
    """A store with one run that holds two leases."""

    one_host = False

    def __init__(self) -> None:
        self.seizable = True
        self.receipts = [Receipt.ACCEPTED, Receipt.ACCEPTED]
        self.leases = [
            Lease(id=n, token=n, kind="k", pool="cpu", attempt=1, payload=b"{}")
            for n in (1, 2)
        ]
        self.settled: list[Settlement] = []
        self.ended: list[str] = []
        self.noted: list[tuple[str, int]] = []
        self.with_host: list[bool] = []
        self.living: list[set[str]] = []
        self.deaths = Deaths(leaving=False, with_jobs=0, idle=0)
        self.seized_by: list[tuple[str | None, float]] = []
        self.worries: list[str] = []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def seize(
        self, _run_id: str, *, by: str | None = None, lapsed_s: float = 0.0
    ) -> bool:
        self.seized_by.append((by, lapsed_s))
        return self.seizable

    def leases_of(self, _run_id: str) -> list[Lease]:
        return self.leases

    def note_death(
        self,
        run_id: str,
        ran: int,
        *,
        with_host: bool = False,
        living: Collection[str] = (),
    ) -> Deaths:
        self.noted.append((run_id, ran))
        self.with_host.append(with_host)
        self.living.append(set(living))
        return self.deaths

    def settle(self, settlements: Sequence[Settlement]) -> list[Receipt]:
        self.settled += settlements
        return self.receipts[: len(settlements)]

    def end_run(self, run_id: str) -> None:
        self.ended.append(run_id)

    def wake(self) -> None:
        """Do nothing."""

    def concerns(self) -> list[str]:
        return self.worries


class Rig:
    """A reclaimer that was never started, and its store."""

    def __init__(self, root: Path, *, details: bool = False) -> None:
        self.store = FakeStore()
        self.steady = True
        thread = StoreThread(
            lambda: self.store, "own", lambda _event: None, SystemClock()
        )
        thread.shared, thread.run_root = True, root
        self.reclaimer = rc.Reclaimer(
            run_of("own", boot_id="this"),
            store=thread,
            may_take=lambda: self.steady,
            registry=lambda: None,
            post=lambda _event: None,
            on_first_check=lambda _store: (),
            clock=SystemClock(),
            details=details,
        )
        self.thread = thread

    def take(self) -> Sequence[Event]:
        """Find the other run among the expired ones."""
        return self.reclaimer._take_expired(self.store, run_of())


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_an_expired_run_loses_its_jobs_but_stays_open(rig: Rig) -> None:
    """It is presumed dead, not proven: it may come back with a late report."""
    *lost, event = rig.take()
    assert [s.outcome for s in rig.store.settled] == [Outcome.LOST] * 2
    # People search for the jobs, not for their number.
    assert [one.name for one in lost] == ["job_ended"] * 2
    assert [one.id for one in lost] == [s.id for s in rig.store.settled]
    assert "its supervisor or host died" in human_line(lost[0])
    assert (event.lost, event.presumed) == (2, True)
    assert rig.store.ended == []


def test_a_lost_attempt_is_reported_to_those_who_ask_for_more_than_the_log(
    tmp_path: Path,
) -> None:
    """Nobody else can: its supervisor is dead."""
    rig = Rig(tmp_path, details=True)
    ended, found = rig.take()[:2]
    assert isinstance(found, AttemptUnsuccessful)
    assert (found.ended, found.pool) == (ended, "cpu")


@pytest.mark.parametrize(("boot_id", "with_host"), [("this", False), ("other", True)])
def test_a_run_of_an_earlier_boot_died_with_its_host(
    rig: Rig, boot_id: str, with_host: bool
) -> None:
    """The store is told so, for which everything that died with it is one death."""
    proof = DeadRun(running_tokens=frozenset())
    rig.reclaimer._reclaim(rig.store, run_of(boot_id=boot_id), proof)  # type: ignore[arg-type]
    assert rig.store.with_host == [with_host]


@pytest.mark.parametrize(("beside", "pays"), [(0, True), (1, False)])
def test_a_suspect_is_charged_only_if_it_was_alone_on_its_host(
    rig: Rig, beside: int, pays: bool
) -> None:
    """A job of another supervisor that died with it may have been the cause."""
    rig.store.leases = [msgspec.structs.replace(rig.store.leases[0], suspect=True)]
    rig.store.deaths = rig.store.deaths._replace(beside=beside)
    rig.take()
    (settled,) = rig.store.settled
    assert (settled.charge.recovery, settled.charge.interruption) == (pays, not pays)


def test_a_suspect_beside_others_is_not_charged_a_recovery(rig: Rig) -> None:
    """Nor are the others; all of them were interrupted."""
    rig.store.leases[0] = msgspec.structs.replace(rig.store.leases[0], suspect=True)
    rig.take()
    charges = [settled.charge for settled in rig.store.settled]
    assert [(one.recovery, one.interruption) for one in charges] == [(False, True)] * 2


def test_the_store_is_told_which_runs_are_alive(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run found alive by the same check, and our own."""
    proofs = {"theirs": DeadRun(running_tokens=frozenset({1})), "third": Alive()}
    monkeypatch.setattr(rc, "prove_dead", lambda _root, run, **_how: proofs[run])
    monkeypatch.setattr(rc, "remove_run", lambda _root, _run: None)
    rig.thread.shared = False
    runs = [run_of(name, boot_id="this") for name in ("own", "theirs", "third")]
    monkeypatch.setattr(rig.reclaimer, "_ask", lambda _question: runs)
    monkeypatch.setattr(rig.thread, "chore", lambda chore: chore(rig.store))
    rig.reclaimer._check_dead(tidy=False)
    assert rig.store.living == [{"own", "third"}]


def test_only_a_doubt_that_lasts_is_an_alarm(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was killed may take a while to die; afterwards once in a minute."""
    now_s, said, dead = [1000.0], [], DeadRun(running_tokens=frozenset())
    monkeypatch.setattr(rig.reclaimer._clock, "monotonic_s", lambda: now_s[0])
    monkeypatch.setattr(rig.reclaimer, "_post", said.append)
    monkeypatch.setattr(rig.thread, "chore", lambda _chore: None)

    def consider(proof: Proof, later_s: float) -> int:
        now_s[0] += later_s
        rig.reclaimer._consider(run_of(), proof)
        return len(said)

    doubt = Unproven("2 of its processes do not die")
    assert [consider(doubt, s) for s in (0.0, 2.0, 3.0, 3.0, 57.0)] == [0, 0, 1, 1, 2]
    for proof in (dead, Alive()):
        assert consider(proof, 90.0) == 2
        assert consider(doubt, 90.0) == 2
    assert doubt.reason in said[0].text


@pytest.mark.parametrize("fails", [False, True])
def test_leasing_begins_after_the_first_search_for_dead_runs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """So that suspects of the last run are known.

    It is reported once, whatever was found.
    """
    happened: list[str] = []

    def check(*, tidy: bool) -> None:
        happened.append(f"check {tidy}")
        if len(happened) > 1:
            rig.reclaimer.close()
        if fails:
            raise OSError("no directory")

    monkeypatch.setattr(rig.reclaimer, "_check_dead", check)
    monkeypatch.setattr(rig.reclaimer, "_check_expired", lambda: None)
    monkeypatch.setattr(rig.thread, "chore", lambda chore: chore(rig.store))
    monkeypatch.setattr(
        rig.reclaimer, "_on_first_check", lambda _store: happened.append("checked")
    )
    monkeypatch.setattr(rc, "EVERY_S", 1e-6)
    rig.thread.shared = False
    rig.reclaimer.run()
    assert happened[:2] == ["check True", "checked"]
    assert happened.count("checked") == 1


def test_after_our_own_outage_no_run_is_presumed_dead(rig: Rig) -> None:
    """The leases of living runs expired as well."""
    rig.steady = False
    assert not rig.take()
    assert rig.store.settled == []


def test_a_run_that_has_renewed_is_left_alone(rig: Rig) -> None:
    """It came back between the check and the transaction."""
    rig.store.seizable = False
    assert not rig.take()
    assert rig.store.settled == []


def test_jobs_locked_by_an_open_transaction_are_left_for_the_next_pass(
    rig: Rig,
) -> None:
    """Only what was written is logged."""
    rig.store.receipts = [Receipt.ACCEPTED, Receipt.LATER]
    ended, event = rig.take()
    assert (ended.outcome, event.lost) == (Outcome.LOST, 1)
    rig.store.receipts = [Receipt.LATER, Receipt.LATER]
    assert not rig.take()


def test_a_dead_run_is_ended_only_when_nothing_of_it_is_held(rig: Rig) -> None:
    """An operator's reclaim says what it could not take."""
    rig.store.receipts = [Receipt.ACCEPTED, Receipt.LATER]
    said = reclaim(rig.store, run_of(), running=frozenset({1}), now_ms=0)
    assert rig.store.ended == []
    assert [s.state for s in rig.store.settled] == [
        JobState.PENDING,
        JobState.RUNNABLE,
    ]
    assert any(isinstance(e, Alarm) and "open transaction" in e.text for e in said)
    rig.store.receipts = [Receipt.ACCEPTED, Receipt.ACCEPTED]
    reclaim(rig.store, run_of(), running=None, now_ms=0)
    assert rig.store.ended == ["theirs"]


@pytest.mark.parametrize(
    ("boot", "visible", "provable"),
    [
        ("this", True, True),
        ("this", False, False),
        ("other", True, False),
        ("other", False, False),
    ],
)
def test_a_run_is_proven_dead_only_where_that_is_possible(
    rig: Rig, tmp_path: Path, boot: str, visible: bool, provable: bool
) -> None:
    """In this boot, with its directory visible, only by proof.

    Otherwise by its lease.
    """
    if visible:
        (tmp_path / "theirs").mkdir()
    assert rig.reclaimer._is_provable(run_of(boot_id=boot)) == provable
    rig.thread.shared = False
    assert rig.reclaimer._is_provable(run_of(boot_id=boot))


def test_a_forgotten_run_is_ended_once_it_holds_nothing(rig: Rig) -> None:
    """A run that expired a day ago is ended, unless it has just come back."""
    rc._forget(rig.store, "theirs")
    assert rig.store.ended == []
    rig.store.leases = []
    rig.store.seizable = False
    rc._forget(rig.store, "theirs")
    assert rig.store.ended == []
    rig.store.seizable = True
    rc._forget(rig.store, "theirs")
    assert rig.store.ended == ["theirs"]


def test_a_concern_is_reported_once_in_ten_minutes(rig: Rig) -> None:
    """The same concern with other figures is the same concern."""

    class Clock(SystemClock):
        now_s = 1000.0

        def monotonic_s(self) -> float:
            return self.now_s

    clock = Clock()
    settings = Settings(store="x", app="x", app_directory="/", pools=())
    keeper = Housekeeping(
        settings,
        "own",
        store=rig.thread,
        usage=Usage(),
        ticking=Ticking("own", SystemClock()),
        other_pools=OtherPools(rig.thread),
        look=HostReport,
        clock=clock,
    )
    rig.store.worries = ["a transaction is open for 60 s", "the disk is nearly full"]
    first = keeper._concerns(rig.store)
    assert [event.text for event in first] == rig.store.worries
    clock.now_s += 60.0
    rig.store.worries[0] = "a transaction is open for 120 s"
    assert not keeper._concerns(rig.store)
    clock.now_s += 600.0
    assert len(keeper._concerns(rig.store)) == 2
