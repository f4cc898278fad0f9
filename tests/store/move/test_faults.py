"""Moving a queue under faults: killed, cut off, twice at once, abandoned halfway.

Whatever happens, the target shows nothing or all of it, the source accepts nothing that
would be lost, and repeating the command finishes the move.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from jobpool.cli.exits import Exit
from jobpool.core.jobs.job import JobState
from jobpool.errors import StoreRefused, StoreUnavailable
from jobpool.store.move import move
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from support.postgres.cutting_proxy import DOWN, UP, CuttingProxy
from support.postgres.server import query_of, server
from support.site.supervising import PATIENCE_S, Site
from support.store.cli_store import run
from support.store.storing import begin_run, ended, lease, new_job, succeeded
from support.waiting import wait_until

JOBS = 2500  # three chunks
LEASED = 60
IN_TRANSACTION = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'jobpool' AND state <> 'idle'
"""


class House:
    """A queue that moves, its target, and the process that moves it.

    Args:
        proxy: what stands before the target.
        source_url: the queue's.
        direct_url: the target's, beside the proxy; its tables are made.
    """

    def __init__(self, proxy, source_url, direct_url):
        self.proxy = proxy
        self.source_url = source_url
        self.target_url = proxy.url(direct_url)
        self.source = open_store(source_url)
        self.target = open_store(direct_url)
        self.schema = query_of(direct_url)["schema"]
        self.movers = Movers()
        self.words = ("--from", source_url, "--to", self.target_url)

    def close(self):
        self.movers.close()
        self.source.close()
        self.target.close()

    def move(self, on_progress=None):
        """Move in this process."""
        return move.move(self.source_url, self.target_url, on_progress)

    def kill_at(self, pattern):
        """Kill a mover with SIGKILL while it waits for the answer to a statement."""
        self.proxy.swallow_answer_to(pattern)
        process = self.movers.start(*self.words, "--yes")

        def met():
            assert process.poll() is None, process.communicate()
            return not self.proxy.is_armed

        wait_until(met, PATIENCE_S, f"the mover says {pattern}")
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
        self.proxy.heal()
        self.wait_rolled_back()

    def wait_rolled_back(self):
        """Wait until the server has undone what was cut off.

        It finishes its statement before it notices, and holds the lock of a move until
        then; the next mover waits for that for no more than three seconds.
        """
        with server().connect() as connection:
            wait_until(
                lambda: connection.execute(IN_TRANSACTION).fetchone() == (0,),
                PATIENCE_S,
                "no transaction is left",
            )

    def staging(self):
        """Name the staging tables that the target has."""
        with server().connect() as connection:
            found = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s "
                "AND tablename LIKE 'moving%%'",
                [self.schema],
            )
            return {name for (name,) in found}

    def is_closed(self):
        """Say whether the source accepts nothing because it is being moved."""
        with contextlib.suppress(StoreRefused):
            self.source.pause(kind="probe")
            return not self.source.resume(kind="probe")
        return True

    def has_moved(self):
        """Say whether the target holds exactly what the source holds."""
        return holdings(self.target) == holdings(self.source)


class Movers(list):
    """Processes that move a queue."""

    def start(self, *words):
        """Start `jobpool move` with these words."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "jobpool", "move", *words, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=own,
        )
        self.append(process)
        return process

    def close(self):
        for process in self:
            process.kill()
            process.communicate()


def run_move(*words):
    """Run `jobpool move` to its end; return its exit code, and what it said."""
    done = run("move", *words, "--json")
    said = json.loads(done.stdout) if done.stdout else None
    return done.exit_code, said, done.stderr


@pytest.fixture
def direct_url():
    url = server().store_url(server().tcp_url)
    yield url
    server().drop(url)


@pytest.fixture
def empty_house(database_path, direct_url):
    """A queue without a job, and a proxy before its target."""
    if not server().is_ours:
        pytest.skip("JOBPOOL_TEST_POSTGRES is somebody's: its port is not known")
    with CuttingProxy(server().port) as proxy:
        house = House(proxy, f"sqlite:///{database_path}", direct_url)
        yield house
        proxy.heal()
        house.close()


@pytest.fixture
def house(empty_house):
    """Jobs that wait, that succeeded and that failed; no run is open."""
    store = empty_house.source
    begin_run(store)
    store.enqueue([new_job(payload=b'{"n":"job-%d"}' % n) for n in range(1, JOBS + 1)])
    granted = lease(store, limit=LEASED)
    store.settle([succeeded(one) for one in granted[::2]])
    store.settle([ended(one) for one in granted[1::2]])
    store.end_run("run-1")
    return empty_house


def holdings(store):
    """Return all of a store's jobs with arguments and history."""
    jobs = store.find(Filter(), limit=10 * JOBS)
    failed = [job.id for job in jobs if job.failures]
    return (
        jobs,
        [store.payload(job.id) for job in jobs[:: JOBS // 50]],
        [store.attempts(job_id) for job_id in failed],
    )


STAGING = {
    "the staging tables are made": b"moving_jobs (LIKE",
    "the first chunk is staged": b'"job-500"',
    "the second chunk is staged": b'"job-1500"',
    "the last chunk is staged": b'"job-2400"',
}
ENDING = {
    "the staged jobs are analyzed": b"ANALYZE ",
    "the jobs appear": b".jobs (\n  id, kind, pool, state, priority, key",
    "they are read back": b"convert_to(j.state",
}


@pytest.mark.parametrize("point", STAGING | ENDING)
def test_a_killed_move_shows_nothing_and_the_next_one_finishes(house, point):
    """Everything is there once, with each value, and no staging is left."""
    before = holdings(house.source)
    house.kill_at((STAGING | ENDING)[point])
    assert house.target.count(Filter()) == 0
    assert house.is_closed()
    code, moved, err = run_move(*house.words, "--yes")
    assert (code, err) == (0, "")
    assert moved["jobs"] == sum(moved["states"].values()) == JOBS
    assert moved["checksum"]
    assert holdings(house.target) == holdings(house.source) == before
    assert house.staging() == set()


def test_a_mover_killed_before_it_began_has_closed_nothing(house):
    """While it connects to the server, the source stays open."""
    house.kill_at(b"server_version_num")
    assert not house.is_closed()
    (fresh,) = house.source.enqueue([new_job()])
    _, moved, _ = run_move(*house.words, "--yes")
    assert moved["jobs"] == fresh.id == JOBS + 1


def test_a_mover_killed_after_the_end_leaves_only_its_staging_tables(house):
    """The next call says that it is done, and cleans up."""
    house.kill_at(b"DROP TABLE")
    assert house.has_moved()
    code, moved, _ = run_move(*house.words, "--yes")
    assert (code, moved["jobs"], moved["checksum"]) == (0, JOBS, None)
    assert house.staging() == set()
    code, _, err = run_move("--from", house.source_url, "--abandon")
    assert code
    assert "is done" in err
    assert house.has_moved()


@pytest.mark.parametrize("point", list(STAGING)[-1:])
def test_a_move_killed_while_staging_can_be_abandoned(house, point):
    """The source accepts jobs again; a later move brings these as well."""
    house.kill_at(STAGING[point])
    code, answer, _ = run_move("--from", house.source_url, "--abandon")
    assert (code, answer) == (0, {"abandoned": house.source_url})
    house.source.enqueue([new_job()])
    code, moved, _ = run_move(*house.words, "--yes")
    assert (code, moved["jobs"]) == (0, JOBS + 1)
    assert house.has_moved()


@pytest.mark.parametrize("point", list(ENDING)[-1:])
def test_abandoning_a_move_killed_in_its_last_step_needs_both_addresses(house, point):
    """Only the target knows whether it happened, so it must be queried."""
    house.kill_at(ENDING[point])
    code, _, err = run_move("--from", house.source_url, "--abandon")
    assert code
    assert "give --to" in err
    assert house.is_closed()
    code, answer, err = run_move(*house.words, "--abandon")
    assert (code, answer, err) == (0, {"abandoned": house.source_url}, "")
    assert house.source.enqueue([new_job()])[0].created
    assert (house.target.count(Filter()), house.staging()) == (0, set())


@pytest.mark.parametrize("direction", [UP, DOWN])
@pytest.mark.parametrize("count", [3_000, 200_000, 600_000])
def test_a_cut_connection_is_reported_and_the_next_call_finishes(
    house, count, direction
):
    """Cut at any byte: nothing is visible, then all of it."""
    house.proxy.cut_after(count, direction)
    with pytest.raises(StoreUnavailable):
        house.move()
    assert not house.proxy.is_armed
    house.wait_rolled_back()
    assert house.target.count(Filter()) == 0
    assert house.move().checksum
    assert house.has_moved()


@pytest.mark.parametrize("delivered", [True, False])
def test_the_outcome_of_a_cut_at_the_last_commit_is_found_out(empty_house, delivered):
    """It returns if the commit happened and raises if not; then it can be repeated."""
    house = empty_house
    house.source.enqueue([new_job()] * 10)

    def arm(staged, total):
        assert staged == total
        house.proxy.cut_at(b"COMMIT", delivered=delivered)

    if delivered:
        assert house.move(arm).checksum
    else:
        with pytest.raises(StoreUnavailable):
            house.move(arm)
        house.wait_rolled_back()
        assert house.target.count(Filter()) == 0
    assert (house.proxy.cuts, house.proxy.is_armed) == (1, False)
    assert bool(house.move().checksum) != delivered
    assert house.has_moved()


def test_several_movers_at_once_move_once(house):
    """The later one gets an error or learns that it is done; nothing is there twice."""
    movers = [house.movers.start(*house.words, "--yes") for _ in range(3)]
    ends = [process.communicate(timeout=PATIENCE_S) for process in movers]
    for process, (_, err) in zip(movers, ends, strict=True):
        assert "Traceback" not in err
        assert bool(err) == bool(process.returncode), err
    answers = [json.loads(out) for out, _ in ends if out]
    assert len([one for one in answers if one["checksum"]]) <= 1
    house.wait_rolled_back()
    code, last, _ = run_move(*house.words, "--yes")
    assert (code, last["jobs"]) == (0, JOBS)
    assert house.has_moved()


def test_a_mover_that_was_overtaken_changes_nothing(house):
    """Another mover finished meanwhile: the first gets an error and stops."""

    def overtake(staged, total):
        if staged < total:
            assert house.move().checksum

    with pytest.raises(StoreRefused, match="was ended by another call"):
        house.move(overtake)
    assert house.has_moved()
    assert house.move().checksum is None
    assert house.staging() == set()


@pytest.mark.parametrize("at", [1000, JOBS])
def test_a_move_that_was_abandoned_meanwhile_ends_with_an_error(house, at):
    """Jobs that came in meanwhile are neither lost nor in two places."""

    def give_up(staged, _total):
        if staged == at:
            move.abandon(house.source_url)
            house.source.enqueue([new_job()])

    with pytest.raises(StoreRefused, match="abandoned in the meantime"):
        house.move(give_up)
    assert house.target.count(Filter()) == 0
    assert house.source.enqueue([new_job()])[0].created
    assert house.move().jobs == JOBS + 2
    assert house.has_moved()


def test_a_move_in_its_last_step_cannot_be_abandoned(house, monkeypatch):
    """Abandoning waits for its end in vain, and the move happens."""
    verify = move._verify
    refused = []

    def meddle(*given):
        for urls in ((house.source_url,), (house.source_url, house.target_url)):
            with pytest.raises((StoreRefused, StoreUnavailable)) as caught:
                move.abandon(*urls)
            refused.append(caught.type)
        return verify(*given)

    monkeypatch.setattr(move, "_verify", meddle)
    assert house.move().checksum
    assert refused == [StoreRefused, StoreUnavailable]
    assert house.is_closed()
    assert house.has_moved()


def test_a_source_with_a_supervisor_is_refused_and_goes_on(tmp_path, direct_url):
    """The supervisor is named and works on.

    Once it has stopped, its results move as well.
    """
    app = "@jobs.job('cpu', kind='double')\ndef double(n: int):\n    return 2 * n\n"
    with Site(tmp_path / "site", app) as site:
        supervisor = site.start("cpu=2")
        ids = site.add_many("double", [{"n": 21}, {"n": 4}])
        words = ("--from", site.url, "--to", direct_url, "--yes")
        code, _, err = run_move(*words)
        assert code
        assert f"(pid {supervisor.pid} on " in err
        assert "stop that supervisor first" in err
        assert [site.result(one) for one in ids] == [42, 8]
        supervisor.stop()
        code, moved, _ = run_move(*words)
        assert (code, moved["jobs"]) == (0, 2)
    with contextlib.closing(open_store(direct_url)) as store:
        assert [store.get(one).result for one in ids] == [b"42", b"8"]


def test_a_supervisor_on_a_queue_that_has_moved_fails(tmp_path, direct_url):
    """Its error names the new address, and its exit code tells the service manager."""
    app = "@jobs.job('cpu', kind='idle')\ndef idle():\n    pass\n"
    with Site(tmp_path / "site", app) as site:
        assert site.store.count(Filter()) == 0
        moved = move.move(site.url, direct_url)
        late = site.launch("--pools", "cpu=1")
        assert late.wait_exit() == Exit.STORE, late.said()
        assert f"was moved to {moved.target}" in late.said()


def test_a_source_whose_supervisor_was_killed_says_what_to_do(tmp_path, direct_url):
    """Its lease would be lost: reclaim first, then the job moves and can run."""
    app = "@jobs.job('cpu', kind='held')\ndef held():\n    hold('gate')\n"
    with Site(tmp_path / "site", app) as site:
        supervisor = site.start("cpu=1")
        held = site.add("held")
        site.wait_begun(held)
        supervisor.kill()
        site.wait_nobody()
        words = ("--from", site.url, "--to", direct_url, "--yes")
        (run,) = site.store.open_runs()
        assert f"`jobpool reclaim {run.id}`" in run_move(*words)[2]
        assert site.job(held).state is JobState.LEASED
        site.cli("reclaim", run.id, "--yes")
        assert run_move(*words)[0] == 0
    with contextlib.closing(open_store(direct_url)) as store:
        assert store.get(held).state in {JobState.RUNNABLE, JobState.PENDING}
