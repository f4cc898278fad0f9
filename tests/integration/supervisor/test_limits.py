"""Time and memory limits, as seen from outside of a real supervisor."""

import json
import time

import pytest

from jobpool.core.jobs.job import NewJob
from jobpool.supervisor.processes.memory_watch import IDLE_SAMPLE_S
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

MIB = 2**20
APP = """
def use(mib):
    block = bytearray(mib << 20)
    for place in range(0, len(block), 4096):
        block[place] = 1
    return block


@jobs.job("cpu", kind="canary", timeout="30s", max_attempts=1)
def canary():
    time.sleep(0.01)


KEPT = []


@jobs.job("cpu", kind="keeps", memory="512MiB", max_attempts=1)
def keeps():
    KEPT.append(use(110))


@jobs.job("cpu", kind="modest", memory="100MiB", max_attempts=1)
def modest():
    time.sleep(0.3)


@jobs.job("cpu", kind="quick.big", memory="512MiB", max_attempts=1)
def quick_big(keeps: bool):
    if keeps:
        KEPT.append(b"x" * (50 << 20))


@jobs.job("cpu", kind="quick.small", memory="64MiB", max_attempts=1)
def quick_small():
    return len(KEPT)


@jobs.job("cpu", kind="dear", memory="200MiB", timeout="60s", max_attempts=1)
def dear():
    stop = threading.Event()
    threading.stack_size(65536)
    for _ in range(2000):
        threading.Thread(target=stop.wait, daemon=True).start()
    for number in range(4):
        if os.fork() == 0:
            held = []
            for _ in range(50):  # over the limit together; the kill may be late
                held.append(b"x" * (1 << 20))
                (HERE / f"held.{number}").write_text(str(len(held)))
            break
    time.sleep(60)


@jobs.job("cpu", kind="busy", timeout="0.3s", max_attempts=1)
def busy():
    while True:
        pass


@jobs.job("cpu", kind="gil", timeout="0.3s", max_attempts=1)
def gil():
    max(range(10**13))


@jobs.job("cpu", kind="no_sigterm", timeout="0.3s", max_attempts=1)
def no_sigterm():
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_IGN)
    while True:
        time.sleep(1)


@jobs.job("cpu", kind="stopped", timeout="0.3s", max_attempts=1)
def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)


@jobs.job("cpu", kind="blocking", timeout="0.3s", max_attempts=1)
def blocking():
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    while True:
        time.sleep(1)


@jobs.job("cpu", kind="soft", soft_timeout="0.2s", timeout="30s", max_attempts=1)
def soft(caught: bool):
    try:
        time.sleep(60)
    except SoftTimeout:
        if not caught:
            raise
        return "cleaned up"


@jobs.job("cpu", kind="soft_async", soft_timeout="0.2s", timeout="30s", max_attempts=1)
async def soft_async():
    import asyncio

    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "cleaned up"


@jobs.job("cpu", kind="soft_deaf", soft_timeout="0.1s", timeout="0.5s", max_attempts=1)
def soft_deaf():
    while True:
        try:
            time.sleep(60)
        except SoftTimeout:
            pass


@jobs.job("cpu", kind="eat", memory="128MiB", timeout="30s", max_attempts=1)
def eat(mib: int, seconds: float = 0.3):
    kept = use(mib)
    time.sleep(seconds)
    return len(kept)


@jobs.job("cpu", kind="grow", memory="128MiB", timeout="30s", max_attempts=1)
def grow(gate: str = "jobs.py"):
    while not (HERE / gate).exists():
        time.sleep(0.005)
    kept = []
    for _ in range(55):  # far over the limit: the kill may be late on a busy host
        kept.append(use(4))
        time.sleep(0.01)
    time.sleep(20)


@jobs.job("cpu", kind="at_once", memory="128MiB", memory_growth=2, retry=AT_ONCE,
          timeout="30s")
def at_once(mib: int):
    kept = use(mib)
    time.sleep(20 if current().limits.memory_bytes < mib << 20 else 0)
    return len(kept)


@jobs.job("cpu", kind="own_error", memory="128MiB", timeout="30s", max_attempts=1)
def own_error():
    raise MemoryError("my own idea")


@jobs.job("cpu", kind="tree", memory="128MiB", timeout="30s", max_attempts=1)
def tree(path: str):
    code = "input(); import time; kept = b'x' * (60 << 20); time.sleep(60)"
    words = [sys.executable, "-c", code]
    made = [subprocess.Popen(words, stdin=subprocess.PIPE) for _ in range(3)]
    Path(path).write_text(" ".join(str(one.pid) for one in made))
    for one in made:
        one.stdin.write(b"\\n")
        one.stdin.flush()
    time.sleep(60)


@jobs.job("cpu", kind="order.pool", max_attempts=1)
def of_pool():
    time.sleep(60)


@jobs.job("cpu", kind="order.decorator", timeout="0.4s", max_attempts=1)
def of_decorator():
    time.sleep(60)


@jobs.job("cpu", kind="order.configured", timeout="59s", max_attempts=7)
def of_configuration():
    time.sleep(60)


@jobs.job("cpu", kind="silent", heartbeat_timeout="0.3s", timeout="30s", max_attempts=1)
def silent():
    time.sleep(60)


@jobs.job("cpu", kind="lively", heartbeat_timeout="8s", timeout="30s", max_attempts=1)
def lively():
    for step in range(90):
        current().heartbeat(progress=step)
        time.sleep(0.1)


@jobs.job("cpu", kind="stepping", timeout="30s")
def stepping(gate: str):
    while not (HERE / gate).exists():
        current().heartbeat(progress=time.time())
        time.sleep(0.001)
    current().heartbeat(progress="last")


@jobs.job("cpu", kind="climb", retry=AT_ONCE, max_attempts=9, max_crashes=9)
def climb(how: str):
    step = current().checkpoint or 0
    if step == 3:
        return step
    current().heartbeat(progress=f"step {step}", checkpoint=step + 1)
    witness("climbed")
    if how == "segfault":
        segfault()
    if how == "timeout":
        time.sleep(60)
    raise ValueError(how)
"""
CONFIG = """
[pools.cpu]
timeout = "1500ms"
timeout_max = "30s"

[kinds."order.configured"]
timeout = "300ms"
max_attempts = 1
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("limits"), APP, config=CONFIG) as site:
        site.start("cpu=2")
        yield site
        site.supervisors[0].stop()


def end_of(site, kind, arguments=None, **options):
    """Run a job of one attempt to its end, and return that attempt."""
    job = site.finish(site.add(kind, arguments, **options))
    assert job.state == "dead", (job.state, job.error)
    (attempt,) = site.store.attempts(job.id)
    return attempt


@pytest.mark.parametrize("kind", ["busy", "gil", "no_sigterm", "stopped", "blocking"])
def test_the_time_limit_ends_whatever_the_handler_does(site, kind):
    """The hard limit is SIGKILL from outside; nothing in the handler matters."""
    attempt = end_of(site, kind)
    assert attempt.outcome == "timed_out"
    assert attempt.reason.startswith("killed at its time limit of 300ms")
    assert attempt.signal == 9
    assert 0.3 <= attempt.duration_s < 10


@pytest.mark.parametrize("kind", ["busy", "gil"])
def test_a_killed_attempt_shows_where_it_was(site, kind):
    """The Python stack at the kill names the handler's own line.

    A kill waits 3 ms for it and no longer, so on a busy machine many may lack it.
    """
    wait_until(
        lambda: f"in {kind}" in (end_of(site, kind).stack or ""),
        PATIENCE_S,
        "a stack of the handler's",
    )


def test_a_caught_soft_timeout_may_still_succeed(site):
    """SoftTimeout is for cleaning up; a handler that returns has succeeded."""
    assert site.result(site.add("soft", {"caught": True})) == "cleaned up"


def test_an_uncaught_soft_timeout_is_timed_out(site):
    """An attempt ended by its soft limit is neither a plain failure nor a kill."""
    attempt = end_of(site, "soft", {"caught": False})
    assert attempt.outcome == "timed_out"
    assert attempt.reason.startswith("ended by its soft time limit")
    assert attempt.signal is None


def test_a_soft_timeout_reaches_a_coroutine(site):
    """An async handler is canceled where it waits, and may clean up as well."""
    assert site.result(site.add("soft_async")) == "cleaned up"


def test_the_hard_limit_follows_an_ignored_soft_one(site):
    """Swallowing SoftTimeout gains nothing."""
    attempt = end_of(site, "soft_deaf")
    assert attempt.reason.startswith("killed at its time limit of 500ms")


@pytest.mark.parametrize("kind", ["eat", "grow"])
def test_the_memory_limit_ends_a_single_process(site, kind):
    """Over its limit it is killed, with its memory use as evidence."""
    eaten = {"mib": 200, "seconds": 20.0}
    attempt = end_of(site, kind, eaten if kind == "eat" else None)
    assert attempt.outcome == "out_of_memory"
    assert "over its memory limit of 128MiB" in attempt.reason
    assert 128 * MIB < attempt.peak_rss_bytes < 300 * MIB


def test_a_refused_allocation_is_out_of_memory(site):
    """It never became resident, and yet the next attempt gets more."""
    job = site.finish(site.add("at_once", {"mib": 350}))
    assert (job.state, job.result) == ("succeeded", str(350 * MIB).encode())
    refused, killed = site.store.attempts(job.id)[:2]
    assert (refused.outcome, refused.error_class) == ("out_of_memory", "MemoryError")
    assert refused.reason.startswith("asked for more than ")
    assert refused.reason.endswith(" in use, over its memory limit of 128MiB")
    assert refused.signal is None
    assert killed.outcome == "out_of_memory"
    assert "over its memory limit of 256MiB" in killed.reason


def test_a_memory_error_raised_by_the_handler_is_a_failure(site):
    """No allocation was refused, and the limit was far away."""
    attempt = end_of(site, "own_error")
    assert (attempt.outcome, attempt.error_class) == ("failed", "MemoryError")


def test_the_memory_limit_counts_the_whole_tree(site):
    """Three processes below the limit each, but over it together, are too much."""
    path = site.folder / "tree"
    attempt = end_of(site, "tree", {"path": str(path)})
    assert attempt.outcome == "out_of_memory"
    assert attempt.peak_rss_bytes > 128 * MIB
    left = set(map(int, path.read_text().split())) & set(site.processes())
    assert left == set()


def test_the_peak_of_a_success_is_recorded(site):
    """Memory use below the limit is recorded too: operators tune by it."""
    job = site.finish(site.add("eat", {"mib": 64}))
    assert job.state == "succeeded"
    assert 64 * MIB < job.peak_rss_bytes < 128 * MIB


def test_limits_come_from_the_first_source_that_names_them(site):
    """[kinds.K], then the job, the decorator, the pool; never over the maximum."""
    reasons = {
        "order.pool": "1.5s",
        "order.decorator": "400ms",
        "order.configured": "300ms",
    }
    ids = {kind: site.add(kind) for kind in reasons}
    own = site.add("order.decorator", timeout_s=0.2)
    over = site.add("order.configured", timeout_s=25.0)
    eaten = {"mib": 100, "seconds": 20.0}
    memory = site.add("eat", eaten, memory_bytes=90 * MIB)
    more = site.add("eat", {"mib": 150}, memory_bytes=300 * MIB)
    for kind, limit in reasons.items():
        assert f"time limit of {limit}" in site.finish(ids[kind]).reason
    assert "time limit of 200ms" in site.finish(own).reason
    assert "time limit of 300ms" in site.finish(over).reason
    assert "memory limit of 90MiB" in site.finish(memory).reason
    assert site.finish(more).state == "succeeded"


def test_a_silent_handler_is_stalled(site):
    """Without a heartbeat within its timeout it is killed, and called stalled."""
    attempt = end_of(site, "silent")
    assert attempt.outcome == "stalled"
    assert attempt.reason.startswith("killed after 300ms without a heartbeat")


def test_a_handler_with_heartbeats_is_not_stalled(site):
    """Heartbeats keep it alive, and its last progress is stored."""
    job = site.finish(site.add("lively"))
    assert job.state == "succeeded", job.reason
    shown = site.cli("show", job.id)[0]
    assert shown["progress"] == 89
    assert shown["last_heartbeat_at"] is not None


def test_progress_is_shown_while_it_changes_and_the_last_is_kept(site):
    """Within a second, however fast it changes, and without a checkpoint as well.

    But for whatever time the machine, or its disk, stands still.
    """
    job_id = site.add("stepping", {"gate": "seen"})
    ages_s = []

    def seen():
        if (progress := site.job(job_id).progress) is not None:
            ages_s.append(time.time() - json.loads(progress))
        return len(ages_s) >= 100 and sorted(ages_s[-100:])[50] < 1.0

    wait_until(seen, 25, "its progress of the last second, a hundred times")
    site.open_gate("seen")
    job = site.finish(job_id)
    assert (job.state, job.progress) == ("succeeded", b'"last"')


@pytest.mark.parametrize("how", ["error", "segfault", "timeout"])
def test_a_checkpoint_reaches_the_next_attempt(site, how):
    """However an attempt ends, the next one goes on from its last checkpoint."""
    timeout_s = 1.0 if how == "timeout" else 30.0
    job = site.finish(site.add("climb", {"how": how}, timeout_s=timeout_s))
    assert (job.state, json.loads(job.result)) == ("succeeded", 3)
    assert json.loads(job.checkpoint) == 3
    climbed = [one.attempt for one in site.witnesses("climbed") if one.job == job.id]
    if how == "timeout":  # on a machine that stands still, one may end before its step
        assert len(climbed) <= 3 < job.attempt
    else:
        assert (climbed, job.attempt) == ([1, 2, 3], 4)


def test_neighbours_of_killed_jobs_lose_nothing(site):
    """While others are killed at their limits, honest jobs need one attempt."""
    hostile = [site.add(kind) for kind in ("busy", "grow", "no_sigterm")]
    canaries = site.add_many("canary", [None] * 30)
    site.finish_all(hostile)
    for job in site.finish_all(canaries):
        assert (job.state, job.attempt) == ("succeeded", 1)
        assert (job.failures, job.crashes, job.interruptions) == (0, 0, 0)


def test_no_job_is_charged_for_memory_that_others_have_left(tmp_path):
    """A job begins in a child that has room for it."""
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=1")
        site.finish(site.add("keeps"))
        job = site.finish(site.add("modest"))
        assert (job.state, job.attempt, job.reason) == ("succeeded", 1, None)
        assert (job.failures, job.crashes, job.interruptions) == (0, 0, 0)
        assert supervisor.stop() == 0


def test_an_idle_child_is_not_blamed_for_memory_left_by_a_bigger_job(tmp_path):
    """A quick small job after a big one ends before the child's memory is sampled."""
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=1")
        site.finish_all(site.add_many("quick.big", [{"keeps": False}] * 80))
        site.finish_all(site.add_many("quick.small", [None] * 80))
        big = NewJob(kind="quick.big", pool="cpu", payload=b'{"keeps": true}')
        small = NewJob(kind="quick.small", pool="cpu", payload=b"{}")
        for _ in range(10):
            made = site.store.enqueue([big, small])
            site.store.wake()
            ended = site.finish_all([one.id for one in made])
            assert [job.state for job in ended] == ["succeeded"] * 2
            if json.loads(ended[1].result):
                break
        else:
            pytest.skip("this machine is too busy for jobs that are sent ahead")
        until_s = time.monotonic() + 3 * IDLE_SAMPLE_S
        wait_until(lambda: time.monotonic() > until_s, 60, "looks at rest")
        assert supervisor.events("alarm") == []
        assert supervisor.stop() == 0


def test_the_recorded_peak_is_no_less_than_what_its_processes_used(tmp_path):
    """However many threads make sampling expensive."""
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=1")
        attempt = end_of(site, "dear")
        held = sum(int(path.read_text() or 0) for path in site.folder.glob("held.*"))
        assert attempt.outcome == "out_of_memory"
        assert attempt.peak_rss_bytes >= held * MIB
        assert supervisor.stop() == 0


def test_nothing_is_left_running(site):
    """Afterwards the slots are idle and no other process is there."""

    def is_rest():
        own = len(site.children()) + len(site.zygotes(site.supervisors[0]))
        return len(site.processes()) <= own + 1

    wait_until(is_rest, PATIENCE_S, "only the pool's own")


def test_a_killed_attempt_shows_its_memory_over_time(site):
    """From its beginning to its peak, beside its limit; a success leaves nothing."""
    job_id = site.add("grow", {"gate": "sampled"})
    # Else a busy machine may look for the first time when it is over its limit.
    wait_until(lambda: site.job(job_id).rss_bytes, PATIENCE_S, "a first sample")
    site.open_gate("sampled")
    job = site.finish(job_id)
    assert (job.state, job.outcome) == ("dead", "out_of_memory")
    (shown,) = site.cli("show", job.id)
    (attempt,) = shown["attempts"]
    trail = attempt["memory_trail"]
    times_ms, sizes = zip(*trail["points"], strict=True)
    assert trail["limit_bytes"] == 128 * MIB
    assert 1 < len(sizes) <= 64
    assert list(times_ms) == sorted(times_ms)
    assert sizes[0] < 128 * MIB < sizes[-1] == max(sizes)
    assert times_ms[-1] <= 1000 * attempt["duration_s"] + 100
