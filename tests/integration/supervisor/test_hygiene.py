"""What a handler leaves behind survives neither its attempt nor reaches the next."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.site.supervising import Site, is_alive

APP = '''
def leave_daemons():
    """Leave three processes that try to get away; return their pids."""
    path = Path(tempfile.mkstemp(dir=HERE)[1])
    code = """
import os, sys, time
def note():
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"%d\\\\n" % os.getpid())
    time.sleep(1000)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note()
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    note()
note()
"""
    subprocess.Popen([sys.executable, "-c", code, str(path)], env={})
    while len(path.read_text().split()) < 3:
        time.sleep(0.005)
    path.rename(HERE / f"daemons.{current().id}.{current().attempt}")


@jobs.job("cpu", kind="daemons", max_attempts=1, max_crashes=1)
def daemons(end: str):
    leave_daemons()
    if end == "failure":
        raise ValueError(end)
    if end == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if end == "timeout":
        time.sleep(1000)


@jobs.job("cpu", kind="scratch")
def scratch():
    made = tempfile.mkdtemp()
    Path(made, "file").write_text("x")
    return [os.environ["TMPDIR"], made, os.listdir(os.environ["TMPDIR"])]


@jobs.job("cpu", kind="look")
def look():
    """Tell what this process is like at the begin of an attempt."""
    import locale

    mask = os.umask(0)
    os.umask(mask)
    fds = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
           if os.path.exists(f"/proc/self/fd/{fd}")}
    with open("/proc/self/oom_score_adj") as file:
        oom_score_adj = int(file.read())
    return {
        "pid": os.getpid(),
        "stdin": sys.stdin.read(),
        "cwd": os.getcwd(),
        "umask": mask,
        "env": os.environ.get("LEAKED"),
        "path": "/leaked" in sys.path,
        "sigterm": repr(signal.getsignal(signal.SIGTERM)),
        "sigusr1": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "locale": locale.setlocale(locale.LC_ALL, None),
        "threads": threading.active_count(),
        "fds": fds,
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "oom_score_adj": oom_score_adj,
        "session": os.getsid(0) == os.getpid(),
    }


@jobs.job("cpu", kind="change")
def change():
    import locale

    os.chdir("/")
    os.umask(0o777)
    os.environ["LEAKED"] = "1"
    sys.path.insert(0, "/leaked")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    return os.getpid()


@jobs.job("cpu", kind="thread")
def thread():
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    return os.getpid()


@jobs.job("cpu", kind="talk", max_attempts=1)
def talk(ok: bool, words: str):
    print(words)
    print("on stderr", file=sys.stderr)
    os.system("echo from a shell")
    if not ok:
        raise ValueError


@jobs.job("cpu", kind="mutter", max_attempts=1)
def mutter():
    print("my password is 4711", flush=True)
    raise ValueError


@jobs.job("cpu", kind="flood", max_attempts=1)
def flood():
    for number in range(200_000):
        print("line", number)
    raise ValueError


def square(number):
    return number * number


@jobs.job("cpu", kind="multi")
def multi():
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.map(square, range(10)))


@jobs.job("cpu", kind="environment")
def environment():
    return sorted(os.environ)


@jobs.job("io", kind="fresh")
def fresh():
    return os.getpid()


@jobs.job("cpu", kind="fork_and_return")
def fork_and_return():
    if os.fork() == 0:
        return "the copy"
    os.wait()
    return "the real one"
'''
CONFIG = """
[pools.cpu]
size = 1
timeout = "60s"

[pools.io]
size = 2
recycle = 1

[kinds.talk]
keep_output = "all"

[kinds.mutter]
keep_output = "none"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("hygiene"), APP, config=CONFIG) as site:
        site.start("cpu=1,io=2")
        yield site
        site.supervisors[0].stop()
        site.wait_nobody()


@pytest.fixture(scope="module")
def first_state(site):
    return site.result(site.add("look"))


def daemons_of(site, job):
    path = site.folder / f"daemons.{job.id}.{job.attempt}"
    pids = [int(word) for word in path.read_text().split()]
    assert len(pids) == 3
    return pids


@pytest.mark.parametrize(
    ("end", "state", "outcome"),
    [
        ("success", "succeeded", "succeeded"),
        ("failure", "dead", "failed"),
        ("crash", "quarantined", "crashed"),
        ("timeout", "dead", "timed_out"),
    ],
)
def test_daemons_are_gone_before_the_job_is_settled(site, end, state, outcome):
    """However an attempt ends.

    Its processes end with it, before the end is reported.
    """
    # The daemons are to be there by then, also if this machine stands still meanwhile.
    timeout_s = 12.0 if end == "timeout" else 60.0
    job = site.finish(site.add("daemons", {"end": end}, timeout_s=timeout_s))
    alive = [pid for pid in daemons_of(site, job) if is_alive(pid)]
    assert alive == []
    assert (job.state, job.outcome) == (state, outcome)
    assert job.interruptions == 0


def test_the_temporary_directory_is_private_and_removed(site):
    """Each attempt has an empty one of its own, and nothing of it remains."""
    first, second = (site.result(site.add("scratch")) for _ in range(2))
    for tmpdir, made, listed in (first, second):
        assert made.startswith(tmpdir)
        assert len(listed) == 1
        assert not Path(made).exists()


def test_stdin_is_empty(first_state):
    """A handler that reads stdin gets the end of file."""
    assert first_state["stdin"] == ""


def test_a_child_has_only_its_own_descriptors(site, first_state):
    """No database, no lock, no other child's channels, nothing of the supervisor's."""
    names = list(first_state["fds"].values())
    assert [
        name for name in names if "jobpool.db" in name and "mark." not in name
    ] == []
    assert len([name for name in names if "mark." in name]) <= 1
    assert len([name for name in names if name.startswith("socket:")]) == 2
    assert len(names) <= 14, "\n".join(names)


def test_a_child_is_confined(first_state):
    """Its own session, no core dumps, first victim when the host is short of memory."""
    assert first_state["session"]
    assert first_state["core"] == [0, 0]
    assert first_state["oom_score_adj"] > 0


def test_what_a_handler_changes_does_not_reach_the_next_job(site, first_state):
    """Same process, same state: as if nothing had run before."""
    changer = site.result(site.add("change"))
    second = site.result(site.add("look"))
    assert changer == second["pid"]
    del first_state["pid"], second["pid"]
    assert first_state == second


def test_a_leaked_thread_does_not_reach_the_next_job(site):
    """A thread cannot be undone: the child is replaced."""
    leaver = site.result(site.add("thread"))
    second = site.result(site.add("look"))
    assert second["threads"] == 1
    assert second["pid"] != leaver


def test_output_is_logged_and_its_tail_stored(site):
    """It always reaches the log under the job's id, wherever it was written from."""
    supervisor = site.supervisors[0]
    for ok in (True, False):
        job = site.finish(site.add("talk", {"ok": ok, "words": f"words {ok}"}))
        for line in (f"words {ok}", "on stderr", "from a shell"):
            supervisor.wait_event("job_output", id=job.id, line=line, slot="cpu/0")
        told = site.store.kept_output(job.id) if ok else site.store.attempts(job.id)[0]
        stored = told.output.splitlines()
        assert sorted(stored) == ["from a shell", "on stderr", f"words {ok}"]
    assert site.store.kept_output(job.id) is None


def test_output_that_is_not_to_be_kept_is_only_logged(site):
    """Not even that of a failure is stored."""
    job = site.finish(site.add("mutter"))
    line = "my password is 4711"
    site.supervisors[0].wait_event("job_output", id=job.id, line=line)
    (attempt,) = site.store.attempts(job.id)
    assert (job.state, attempt.output) == ("dead", None)


def test_only_the_tail_of_long_output_is_kept(site):
    """The end explains a failure; what was cut is marked."""
    job = site.finish(site.add("flood"))
    (attempt,) = site.store.attempts(job.id)
    assert attempt.output.endswith("line 199998\nline 199999\n")
    assert len(attempt.output) < 200_000
    assert "left out" in attempt.output[:200]


def test_multiprocessing_works_in_a_handler(site):
    """A handler may use processes of its own."""
    assert site.result(site.add("multi")) == 285


def test_a_copy_that_returns_is_no_second_result(site):
    """A forked copy of the handler ends where the handler ends."""
    assert site.result(site.add("fork_and_return")) == "the real one"


def test_recycling_after_one_job_means_a_fresh_child_each(site):
    """With recycle = 1 no two jobs ever share a process."""
    ids = site.add_many("fresh", [None] * 20, pool="io")
    pids = [site.result(job_id) for job_id in ids]
    assert len(set(pids)) == 20


def test_a_signal_at_the_process_group_does_not_end_jobs(site):
    """A terminal's Ctrl-C or hang-up concerns only the supervisor."""
    before = site.result(site.add("look"))["pid"]
    zygotes = site.wait_zygotes(site.supervisors[0], 2)
    for pid in (before, *zygotes):
        for signum in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, signum)
    assert site.result(site.add("look"))["pid"] == before
    assert [pid for pid in zygotes if not is_alive(pid)] == []


def test_only_named_variables_are_kept_in_an_environment(tmp_path):
    """A secret in the shell reaches no handler unless it is on the list."""
    config = '[pools.cpu]\nenv = ["PATH", "ALLOWED"]\n[pools.io]\nsize = 1\n'
    with Site(tmp_path, APP, config=config) as scrubbed:
        supervisor = scrubbed.start("cpu=1", env={"SECRET": "x", "ALLOWED": "y"})
        names = set(scrubbed.result(scrubbed.add("environment")))
        assert supervisor.stop() == 0
    assert names >= {"ALLOWED", "PATH", "TMPDIR"}
    assert "SECRET" not in names
    assert {name for name in names if name.startswith("JOBPOOL_")} <= {"JOBPOOL_RUN"}


IGNORING = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "jobpool", *sys.argv[1:]])
"""


def test_an_inherited_ignored_sigchld_does_no_harm(site):
    """An ignored SIGCHLD is inherited; the supervisor still sees every end."""
    job = site.add("look")
    done = subprocess.run(
        [sys.executable, "-c", IGNORING, "--pools", "cpu=1", "--burst"],
        cwd=site.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert site.finish(job).state == "succeeded"
