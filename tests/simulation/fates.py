"""What children do: set up, take tickets, and act out their attempts' fates.

A child takes a job's ticket before it begins the job, in order, and reports its end
before it takes the next one. What a fate plans is void once the attempt is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jobpool.core.jobs.job import NewJob
from jobpool.sandbox.protocol.messages import (
    Ask,
    Beat,
    Done,
    FromChild,
    Raised,
    Ready,
    RunJob,
    StartFailed,
)
from jobpool.supervisor.machine.state.backpressure import (
    SMALL_BYTES,
    UNWRITTEN_MAX_BYTES,
)
from simulation import asking
from simulation.host import IDLE_BYTES, Orphan, Tree
from simulation.plan import Fate
from support.store.history import Struck

Send = Callable[["FromChild | str"], None]
SEGV, KILLED = 11, 9
BEAT_S = 1.0
RESTLESS_S = 6.0
"""The watch is certain after so long that a child without a job does not rest."""
LARGE_EVERY = 8
"""Of so many jobs one has a result that is written after the others' ends."""
LARGE = b"1" * (SMALL_BYTES + 1)
HUGE_EVERY = 24
"""After each of them nothing begins in its pool until it is written."""
HUGE = b"1" * UNWRITTEN_MAX_BYTES
GROWN_BYTES, GROWS_BYTES, GROWS_S = 400 * 2**20, 40 * 2**20, 0.1
"""Of one that grows: up to what, and how fast."""
TOLD_S = 0.05
OPEN_S = 1.0
"""A handler's own transaction is open for at most so long, or for no time at all."""


def later(tree: Tree, seconds: float, act: Callable[[], None]) -> None:
    """Do something in a child later, if the present attempt still runs then."""
    age = tree.age

    def due() -> None:
        if tree.alive and tree.age == age and not tree.frozen:
            act()

    tree.world.kernel.after(seconds, due, tree.run.host.machine)


def set_up(tree: Tree, send: Send) -> None:
    """Begin the life of a child that has received `Go`."""
    tree.send = send
    world = tree.world

    def ready() -> None:
        if world.chance("start fails"):
            world.sometimes["a child could not be set up"] += 1
            send(StartFailed("a hook raised", ""))
            tree.die("itself", exit_code=1)
        elif world.chance("start dies"):
            tree.die("itself", signal=SEGV)
        elif world.chance("start hangs"):
            world.sometimes["a child hung in its start"] += 1
        else:
            send(Ready(tree.rss_bytes))
            tree.is_idle = True
            offer(tree)

    later(tree, 0.001 + 0.01 * world.random.random(), ready)


def offer(tree: Tree) -> None:
    """Let an idle child check for a ticket."""
    if tree.is_idle and tree.tickets:
        later(tree, tree.world.kernel.soon_s(), lambda: _take(tree))


def _take(tree: Tree) -> None:
    if not tree.is_idle or tree.running is not None:
        return
    while tree.tickets:
        seq = tree.tickets.popleft()
        while tree.frames and tree.frames[0].seq != seq:
            tree.frames.popleft()  # its ticket was recalled
        if tree.frames:
            tree.is_idle = False
            frame = tree.frames.popleft()
            tree.begin(frame)
            _meet(tree, frame, tree.world.fate_of(frame))
            return


def retire(tree: Tree) -> None:
    """End when there is nothing to do, unless the child ignores requests."""
    if tree.is_deaf or tree.world.chance("retire hangs"):
        tree.world.sometimes["a child did not retire"] += 1
        return
    if tree.running is None:
        later(tree, 0.001, lambda: tree.die("itself", exit_code=0))


def soft_timeout(tree: Tree) -> None:
    """Raise in the handler, if it permits that."""
    frame = tree.running
    if frame is None or tree.world.fate_of(frame).name != "soft":
        return
    error = Raised(["jobpool.SoftTimeout"], "late", "", soft_timeout=True)
    later(tree, 0.001, lambda: _done(tree, frame, error))


def _meet(tree: Tree, frame: RunJob, fate: Fate) -> None:
    tree.world.sometimes[f"fate {fate.name}"] += 1
    later(tree, fate.seconds, lambda: _FATES[fate.name](tree, frame))


def _done(
    tree: Tree,
    frame: RunJob,
    error: Raised | None = None,
    *,
    surprise: str = "",
    go_on: bool = True,
    completed: bool = False,
    undone: bool = False,
) -> Done:
    """Report the end of an attempt, and check for the next.

    Args:
        tree: whose.
        frame: the attempt.
        error: what its handler raised.
        surprise: what it has left behind.
        go_on: check for the next.
        completed: its handler called `complete`.
        undone: and did not commit that.
    """
    is_large = error is None and frame.id % LARGE_EVERY == 0
    is_huge = is_large and frame.id % HUGE_EVERY == 0
    done = Done(
        seq=frame.seq,
        token=frame.token,
        ok=error is None,
        result=HUGE if is_huge else LARGE if is_large else b"1",
        duration_s=tree.world.fate_of(frame).seconds,
        cpu_s=0.0,
        rss_bytes=tree.rss_bytes,
        peak_rss_bytes=tree.rss_bytes,
        error=error,
        surprise=surprise,
        completed=completed,
    )
    soft = error is not None and error.soft_timeout
    tree.world.sometimes["a result was large"] += is_large
    tree.world.sometimes["a result kept its pool waiting"] += is_huge
    ok = error is None and not undone
    cause = "done_ok" if ok else "done_soft" if soft else "done_failed"
    if error is not None and error.snooze_s is not None:
        cause = "done_snoozed"
    tree.send(done)
    tree.ended(cause, gave_up=error is not None and error.give_up)
    tree.age += 1
    if go_on:
        tree.is_idle = True
        offer(tree)
    return done


def _ok(tree: Tree, frame: RunJob) -> None:
    _done(tree, frame)


def _fail(tree: Tree, frame: RunJob) -> None:
    _done(tree, frame, Raised(["builtins.ValueError"], "no", ""))


def _give_up(tree: Tree, frame: RunJob) -> None:
    _done(tree, frame, Raised(["jobpool.GiveUp"], "never", "", give_up=True))


def _later(tree: Tree, frame: RunJob) -> None:
    again_in_s = tree.world.fate_of(frame).again_in_s
    _done(tree, frame, Raised(["jobpool.RetryLater"], "", "", retry_in_s=again_in_s))


def _snooze(tree: Tree, frame: RunJob) -> None:
    again_in_s = tree.world.fate_of(frame).again_in_s
    _done(tree, frame, Raised(["jobpool.Snooze"], "busy", "", snooze_s=again_in_s))
    tree.world.snoozed[frame.id] += 1


def _crash(tree: Tree, _frame: RunJob) -> None:
    tree.die("itself", signal=SEGV)


def _exit(tree: Tree, _frame: RunJob) -> None:
    tree.die("itself", exit_code=0)


def _hang(_tree: Tree, _frame: RunJob) -> None:
    """Do nothing, forever."""


def _leak(tree: Tree, frame: RunJob) -> None:
    tree.guilt.add("over_memory")
    tree.rss_bytes = 2**30
    tree.send(f"over memory {frame.seq}")


def _grow(tree: Tree, frame: RunJob) -> None:
    """Use more and more, less than its limit, and give it back at the end."""
    if tree.rss_bytes < GROWN_BYTES:
        tree.rss_bytes += GROWS_BYTES
        later(tree, GROWS_S, lambda: _grow(tree, frame))
        return
    tree.rss_bytes = IDLE_BYTES
    _done(tree, frame)


def _lie(tree: Tree, frame: RunJob) -> None:
    tree.guilt.add("lied")
    tree.send(Done(frame.seq, frame.token - 1, True, b"1", 0.0, 0.0, 0, 0))


def _garbage(tree: Tree, _frame: RunJob) -> None:
    tree.guilt.add("lied")
    tree.send("bytes that are no frame")


def _flood(tree: Tree, frame: RunJob) -> None:
    tree.guilt.add("lied")
    for ask in range(12):
        tree.send(Ask(token=frame.token, ask=ask, jobs=[]))


def _twice(tree: Tree, frame: RunJob) -> None:
    tree.send(_done(tree, frame))


def _forge(tree: Tree, frame: RunJob) -> None:
    """The handler reports its own end and goes on; no further job begins."""
    _done(tree, frame, go_on=False)
    tree.is_deaf = True

    def seen() -> None:
        tree.send("restless")
        later(tree, RESTLESS_S, seen)

    later(tree, RESTLESS_S, seen)


def _daemon(tree: Tree, frame: RunJob) -> None:
    tree.run.orphans.append(Orphan(frame.id, frame.token))
    _done(tree, frame, surprise="it left a process behind", go_on=False)


def _daemon_crash(tree: Tree, frame: RunJob) -> None:
    orphan = Orphan(frame.id, frame.token)
    kernel = tree.world.kernel
    if tree.world.chance("orphan is stuck"):
        orphan.stuck_until_s = kernel.now_s + 3.0
    tree.run.orphans.append(orphan)
    tree.die("itself", signal=SEGV)


def _beat(tree: Tree, frame: RunJob) -> None:
    """Report four times, then end."""

    def beat(left: int) -> None:
        if left == 0:
            _done(tree, frame)
            return
        tree.send(Beat(frame.token, b"0.5", b'{"at":%d}' % left))
        later(tree, BEAT_S, lambda: beat(left - 1))

    beat(4)


def _ask(tree: Tree, frame: RunJob) -> None:
    """Enqueue a job from within; the answer is not waited for."""
    call = f"{frame.token}+"
    tree.world.asked(call)
    job = NewJob(
        kind=frame.kind,
        pool=tree.world.pool_of(frame.kind),
        payload=tree.world.payload(call),
    )
    tree.send(Ask(token=frame.token, ask=1, jobs=[job]))
    later(tree, 0.05, lambda: _done(tree, frame))


def _done_crash(tree: Tree, frame: RunJob) -> None:
    _done(tree, frame, go_on=False)
    tree.die("itself", signal=SEGV)


def _complete(tree: Tree, frame: RunJob) -> None:
    """Complete the job in a transaction that stays open for a while."""
    host = tree.run.host
    tree.world.completions.come(host)
    if host.asleep_s is None:
        _write_completion(tree, frame)
    else:
        host.goes_first = lambda: _write_completion(tree, frame)


def _write_completion(tree: Tree, frame: RunJob) -> None:
    world = tree.world
    open_s = OPEN_S * max(0.0, world.random.uniform(-1.0, 1.0))
    if not world.completions.write(tree, frame, open_s):
        _done(tree, frame, Raised(["jobpool.Superseded"], "late", ""))
    elif open_s:
        later(tree, open_s, lambda: _end_completed(tree, frame))
    else:
        _end_completed(tree, frame)


def _end_completed(tree: Tree, frame: RunJob) -> None:
    """Commit or not, then end in any way."""
    world, how = tree.world, tree.world.fate_of(frame).name
    if how in {"complete_fail", "complete_crash"}:
        commits = world.random.random() < 0.5
    else:
        commits = how != "complete_not"
    knows = commits and world.completions.commit(tree, frame)
    if not world.completions.stands(frame.id, frame.token):
        world.sometimes["a completion was never committed"] += 1
    if how == "complete_crash":
        tree.die("itself", signal=SEGV)
    elif how == "complete_fail" or (commits and not knows):
        error = Raised(["builtins.OSError"], "no answer", "")
        _done(tree, frame, error, completed=True)
    elif how != "complete_hang":
        _done(tree, frame, completed=True, undone=not commits)


def _kill_parent(tree: Tree, frame: RunJob) -> None:
    _strike(tree, frame)
    tree.world.kill_supervisor_of(tree.run)


def _kill_host(tree: Tree, frame: RunJob) -> None:
    _strike(tree, frame)
    tree.world.nemesis.switch_off(tree.run.host)


def _strike(tree: Tree, frame: RunJob) -> None:
    world, host = tree.world, tree.run.host.name
    world.note(
        Struck(at_s=world.kernel.now_s, job=frame.id, token=frame.token, host=host)
    )


def _kill_zygote(tree: Tree, frame: RunJob) -> None:
    tree.world.kill_zygotes_of(tree.run)
    _done(tree, frame)


def _bucket(tree: Tree, frame: RunJob) -> tuple[str, str] | None:
    """Return what an attempt asks for, if its application has such a quota."""
    plan = tree.world.plan_of(frame)
    return None if plan is None else tree.world.quotas.asked_by(plan)


def _permit(tree: Tree, frame: RunJob) -> None:
    """Take a few permits in turn; how it ends with them is its fate."""
    fate, bucket = tree.world.fate_of(frame), _bucket(tree, frame)
    if bucket is None:
        _done(tree, frame)
        return

    def heard(n: int, granted: bool) -> None:
        if not granted:
            again_in_s = tree.world.quotas.refused(frame)
            error = Raised(["jobpool.Snooze"], "no permit", "", snooze_s=again_in_s)
            _done(tree, frame, error)
        elif fate.name == "permit_keep":
            later(tree, fate.again_in_s, lambda: _done(tree, frame))
        elif fate.name == "permit_die":
            later(tree, fate.again_in_s, lambda: tree.die("itself", signal=SEGV))
        else:
            later(tree, fate.again_in_s, lambda: go_on(n))

    def go_on(n: int) -> None:
        asking.request_ended(tree, frame, bucket)
        asking.give_back(tree, frame, n)
        if n < asking.PERMITS:
            ask(n + 1)
        else:
            _done(tree, frame)

    def ask(n: int) -> None:
        asking.ask(tree, frame, n, bucket, lambda granted: heard(n, granted))

    ask(1)
    if fate.name == "permit_leave":
        asking.give_back(tree, frame, 1)
        later(tree, fate.again_in_s, lambda: _done(tree, frame))


def _throttled(tree: Tree, frame: RunJob) -> None:
    """Raise `Throttled` the first time."""
    fate, bucket = tree.world.fate_of(frame), _bucket(tree, frame)
    if bucket is None or tree.world.snoozed[frame.id]:
        _done(tree, frame)
        return
    tree.world.snoozed[frame.id] += 1
    error = Raised(["jobpool.Throttled"], "429", "", snooze_s=fate.again_in_s)
    error.throttled = bucket
    _done(tree, frame, error)


def _told_to_wait(tree: Tree, frame: RunJob) -> None:
    """A service says when to come back; the handler itself goes on."""
    fate, bucket = tree.world.fate_of(frame), _bucket(tree, frame)
    if bucket is not None:
        asking.tell(tree, frame, bucket, fate.again_in_s)
    later(tree, TOLD_S, lambda: _done(tree, frame))


def _complete_early(tree: Tree, frame: RunJob) -> None:
    """Complete the job and work on."""
    world = tree.world
    if not world.completions.write(tree, frame, 0.0):
        _done(tree, frame, Raised(["jobpool.Superseded"], "late", ""))
    elif not world.completions.commit(tree, frame):
        error = Raised(["builtins.OSError"], "no answer", "")
        _done(tree, frame, error, completed=True)
    else:
        again_in_s = world.fate_of(frame).again_in_s
        later(tree, again_in_s, lambda: _done(tree, frame, completed=True))


_FATES: Mapping[str, Callable[[Tree, RunJob], None]] = {
    "ok": _ok,
    "fail": _fail,
    "give_up": _give_up,
    "later": _later,
    "snooze": _snooze,
    "crash": _crash,
    "exit": _exit,
    "hang": _hang,
    "soft": _hang,
    "stop": _hang,
    "silent": _hang,
    "leak": _leak,
    "grow": _grow,
    "lie": _lie,
    "garbage": _garbage,
    "flood": _flood,
    "twice": _twice,
    "forge": _forge,
    "daemon": _daemon,
    "daemon_crash": _daemon_crash,
    "beat": _beat,
    "ask": _ask,
    "done_crash": _done_crash,
    "kill_parent": _kill_parent,
    "kill_host": _kill_host,
    "kill_zygote": _kill_zygote,
    "complete": _complete,
    "complete_not": _complete,
    "complete_fail": _complete,
    "complete_crash": _complete,
    "complete_hang": _complete,
    "complete_early": _complete_early,
    "permit": _permit,
    "permit_keep": _permit,
    "permit_die": _permit,
    "permit_leave": _permit,
    "throttled": _throttled,
    "told_to_wait": _told_to_wait,
}
