"""The zoo: every hostile handler gets its verdict and harms nothing beside it.

For each level of the sandbox, and as root and as an ordinary user, one supervisor runs
all beasts at once, in several slots, beside canaries in the same pool and in another
one. The beasts that change their own process run in a pool with one slot, each followed
by a job that checks what is left of the change.
"""

import json
import os
import sys
import threading
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from jobpool.cli.root import cli
from jobpool.core.config.settings import SandboxLevel
from jobpool.core.jobs.job import UNFINISHED
from jobpool.store.records.operating import Filter
from support.site.as_nobody import NOBODY, obstacle, open_place
from support.site.supervising import Site
from support.waiting import Running

pytestmark = pytest.mark.timeout(600)
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from zoo_app import BEASTS  # noqa: E402

CONFIG = """
[pools.cpu]
size = 4
sandbox = "{level}"
memory_max = "1GiB"

[pools.solo]
size = 1
sandbox = "{level}"

[pools.io]
size = 1
sandbox = "{level}"
"""
CANARY_EVERY_S = 0.1
CANARIES_MIN = 22
"""They go on until there are so many, however soon the beasts have ended."""
CANARY_LATE_S = 10.0
"""Beside whole pools of beasts, on a machine that is busy otherwise, while it runs."""
ZOO_S = 240.0
TROUBLE = ("alarm", "store_trouble", "zygote_failed", "stale_settlement")
POLL_S = 0.2
STOOD_S = 2.0
"""Of a machine that runs nothing for so long whatever is late may be told."""
TOLD_S = 1.0
"""By then it has been."""
LATE_KILL_S = 2.5
"""Longer than those run whose stack is looked at, if their supervisor is in time."""
DUMP_S = 0.2
"""Stacks are written so shortly before a time limit, and it does not wait for them."""


class OneProcessor(Running):
    """Of one alone, also such pauses as keep a child from writing its stacks."""

    LATE_S = 0.07
    """A tenth of a second, less the nap during which it begins, and a little."""


class Zoo(NamedTuple):
    """What became of the beasts at one level, for one user."""

    names: tuple[str, ...]
    jobs: dict[str, object]
    """By kind."""
    attempts: dict[str, object]
    inspections: list[object]
    """What was seen in the pool with one slot: before all, and after each beast."""
    canaries: list[object]
    late_s: list[float]
    """How long each canary took, while the machine ran."""
    pauses: tuple[tuple[float, float], ...] = ()
    """When one of the processors did not run, in monotonic seconds."""
    aftermath: "Aftermath | None" = None


class Aftermath(NamedTuple):
    """What was found when all beasts were gone."""

    alarms: list[object]
    exit_code: int
    not_shown: dict[str, str]
    """What `jobpool show` said instead, by kind."""


def users():
    own = "root" if os.geteuid() == 0 else "user"
    return [own] if own == "user" else [own, "user"]


PLACES = [
    (level, user)
    for level in SandboxLevel
    for user in users()
    # Without a sandbox, a user has nothing that root has not.
    if user == users()[0] or level is not SandboxLevel.OFF
]


def is_first(level, user):
    return (level, user) == (next(iter(SandboxLevel)), users()[0])


@pytest.fixture(
    scope="module",
    params=PLACES,
    ids="-".join,
)
def zoo(request, tmp_path_factory):
    level, user = request.param
    if os.geteuid() == 0 and (user == "user" or level == "strict"):
        if why := obstacle():
            pytest.skip(why)
        # At level strict the children of root's supervisor are users of their own.
        with open_place(NOBODY if user == "user" else 0) as (folder, before):
            yield watched(level, user, folder, before)
    else:
        yield watched(level, user, tmp_path_factory.mktemp("zoo"), ())


def watched(level, user, folder, before):
    """Run the beasts, then check what they left behind."""
    config = CONFIG.format(level=level)
    with Site(folder, config=config, before=before) as site, ExitStack() as looks:
        running = looks.enter_context(Running())
        each = [
            looks.enter_context(OneProcessor(cpu)) for cpu in os.sched_getaffinity(0)
        ]
        app = ("--app", HERE / "zoo_app.py")
        supervisor = site.launch("run", *app, "--log-format", "json")
        supervisor.wait_ready()
        found = let_out(site, level, user, running)
        pauses = tuple(pause for one in each for pause in one.pauses())
        aftermath = Aftermath(
            alarms=troubles(supervisor, running),
            exit_code=supervisor.stop(),
            # Once: at every level, for both users, they leave the same to be shown.
            not_shown=not_shown(site, found.jobs) if is_first(level, user) else {},
        )
        site.wait_nobody()
        return found._replace(pauses=pauses, aftermath=aftermath)


def troubles(supervisor, running):
    """Return its alarms, except those about lying children.

    Nor those when the machine had stood still: then a child is long in dying.
    """
    stood = [one for one in running.pauses() if one[1] - one[0] > STOOD_S]
    return [
        event
        for event in supervisor.events()
        if event["event"] in TROUBLE
        and "its child sent" not in event.get("text", "")
        and not any(
            begin_s <= told_s(event) < end_s + TOLD_S for begin_s, end_s in stood
        )
    ]


def told_s(event):
    """Return when an event was told, in monotonic seconds."""
    return monotonic_s(1000 * datetime.fromisoformat(event["time"]).timestamp())


def monotonic_s(at_ms):
    return at_ms / 1000 - time.time() + time.monotonic()


def not_shown(site, jobs):
    """Return what was shown instead of a job, whatever the job contains."""
    said = {}
    for kind, job in jobs.items():
        words = ["show", str(job.id), "--payload", "--store", site.url]
        done = CliRunner().invoke(cli, words)
        if done.exit_code != 0 or "\x1b" in done.output:
            said[kind] = f"{done.exit_code}: {done.output!r:.300}"
    return said


def at_large(level, user):
    """Return the beasts that are run at a level, for a user."""
    return [one for one in BEASTS if one.verdict_at(level, user) is not None]


def let_out(site, level, user, running):
    """Enqueue all beasts, canaries beside them, and wait for every end."""
    ids, inspections = {}, [site.add("zoo.inspect", pool="solo")]
    for beast in at_large(level, user):
        ids[beast.kind] = site.add(beast.kind, pool=beast.pool)
        if beast.pool == "solo":
            inspections.append(site.add("zoo.inspect", pool="solo"))
    canaries, ended = [], threading.Event()

    def sing():
        while not ended.wait(CANARY_EVERY_S) or len(canaries) < CANARIES_MIN:
            canaries.append(site.add("zoo.canary", pool="cpu", priority=9))
            canaries.append(site.add("zoo.canary.io", pool="io", priority=9))

    singer = threading.Thread(target=sing)
    singer.start()
    try:
        wait_for(site, [*ids.values(), *inspections])
    finally:
        ended.set()
        singer.join()
    wait_for(site, canaries)
    sung = [site.job(job_id) for job_id in canaries]
    return Zoo(
        (level, user),
        {kind: site.job(job_id) for kind, job_id in ids.items()},
        {kind: site.store.attempts(job_id) for kind, job_id in ids.items()},
        [site.job(job_id) for job_id in inspections],
        sung,
        [
            running.ran_s(monotonic_s(c.created_at_ms), monotonic_s(c.finished_at_ms))
            for c in sung
        ],
    )


def wait_for(site, job_ids):
    """Wait until all have finished; name those that have not."""
    which = Filter(ids=tuple(job_ids), states=UNFINISHED)
    deadline = time.monotonic() + ZOO_S
    while left := site.store.find(which, limit=len(job_ids)):
        names = [f"{job.kind} {job.state} {job.slot}" for job in left]
        assert time.monotonic() < deadline, f"not within {ZOO_S} s: {names}"
        time.sleep(POLL_S)


def mismatch(zoo, beast):
    """Say how a beast's end differs from its verdict, or nothing."""
    job, verdict = zoo.jobs[beast.kind], beast.verdict_at(*zoo.names)
    text = f"{job.error_class}: {job.error}"
    seen = f"{job.outcome} {job.state}: {job.reason}: {text:.500}"
    if (job.attempt, job.interruptions, job.recoveries) != (1, 0, 0):
        return f"attempt {job.attempt}, interrupted or lost: {seen}"
    if not verdict.outcome:
        return ""
    fits = (
        (job.outcome, job.state) == (verdict.outcome, verdict.state)
        and verdict.reason in (job.reason or "")
        and verdict.error in text
    )
    if not fits:
        return f"{seen}, and not {verdict}"
    return "" if job.state == "succeeded" else unproven(zoo, beast.kind, verdict)


def unproven(zoo, kind, verdict):
    """Say what is missing in the evidence stored with the attempt."""
    (attempt,) = zoo.attempts[kind]
    for name in ("signal", "exit_code"):
        wanted = getattr(verdict, name)
        if wanted is not None and getattr(attempt, name) != wanted:
            return f"{name} {getattr(attempt, name)}, and not {wanted}"
    ran_ms = attempt.finished_at_ms - attempt.started_at_ms
    killed_s = monotonic_s(attempt.finished_at_ms)
    # A kill that is late, or of a child that could not run, waits for no evidence.
    is_late = verdict.outcome == "timed_out" and (
        ran_ms > 1000 * LATE_KILL_S
        or any(
            begin_s < killed_s and killed_s - DUMP_S < end_s
            for begin_s, end_s in zoo.pauses
        )
    )
    for name in ("output",) if is_late else ("output", "stack"):
        if getattr(verdict, name) not in (getattr(attempt, name) or ""):
            return f"{name}: {getattr(attempt, name)!r}"
    return ""


def test_every_beast_gets_its_verdict(zoo):
    """Outcome, state, reason, signal or exit code, and the stored evidence."""
    found = {beast.kind: mismatch(zoo, beast) for beast in at_large(*zoo.names)}
    assert {kind: text for kind, text in found.items() if text} == {}
    assert len(found) > 200


def test_what_a_beast_changes_does_not_reach_the_next_job(zoo):
    """After each of them the process is as if it had never run."""
    seen = [job.result or f"{job.reason}: {job.error}" for job in zoo.inspections]
    after = ["nobody", *(b.kind for b in at_large(*zoo.names) if b.pool == "solo")]
    assert json.loads(seen[0])["stdin"] == ""
    spoilt = {k: s for k, s in zip(after, seen, strict=True) if s != seen[0]}
    assert spoilt == {}


def test_every_canary_succeeds(zoo):
    """Exactly once, at the first attempt, and on time."""
    assert len(zoo.canaries) >= CANARIES_MIN
    spoilt = [c for c in zoo.canaries if (c.state, c.attempt) != ("succeeded", 1)]
    assert spoilt == []
    late_s = sorted(zoo.late_s)
    assert late_s[-1] <= CANARY_LATE_S, late_s[-20:]


def test_the_supervisor_and_the_command_line_survive_the_zoo(zoo):
    """No alarm, a clean drain, and every end can be shown."""
    assert zoo.aftermath.alarms == []
    assert zoo.aftermath.exit_code == 0
    assert zoo.aftermath.not_shown == {}
