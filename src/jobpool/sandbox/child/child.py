"""The child: set up once, then one attempt after another until it is told to end.

Theory of operation. The zygote's forked copy enters `child_main` and never leaves
it. It waits for `Go`, sets itself up, runs the application's hooks, sends `Ready`,
and then takes jobs from its `Link`. For each: ticket, mark, handler, reset, `Done`,
next job. The mark is the token of an attempt that has begun, in a file that outlives
this process: a later supervisor relies on it if everything was killed at once.

The handler is the user's code and may do anything. It may leave by any exception,
from a signal handler of its own, or in a forked copy of this process (which must end
there and never reach our loop: the pid distinguishes it).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed does not know it
import contextvars
import os
import signal
import sys
import time
import traceback
from socket import socket
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import msgspec

import jobpool.sandbox.child.memory_errors  # noqa: F401 - when it is needed, memory is short
from jobpool.core.application import current as running
from jobpool.core.application import reports
from jobpool.core.application.current_span import enter_span
from jobpool.errors import AppError, ResultTooLarge, SoftMemory, SoftTimeout
from jobpool.sandbox.app_loader import Application, load_application
from jobpool.sandbox.cgroups import cgroup
from jobpool.sandbox.child import log_context
from jobpool.sandbox.child.arguments import decoded_checkpoint, with_results
from jobpool.sandbox.child.channel import AttemptChannel
from jobpool.sandbox.child.closed_channel import ClosedChannel
from jobpool.sandbox.child.encoding import PLAIN, Encoding
from jobpool.sandbox.child.exception_report import (
    described,
    failed,
    raised,
    redacted,
)
from jobpool.sandbox.child.handler_forks import watch_forks
from jobpool.sandbox.child.link import DEFERRED, Link
from jobpool.sandbox.child.soft_memory import SoftMemoryGuard
from jobpool.sandbox.child.usage import Usage
from jobpool.sandbox.confinement import lockdown, setup
from jobpool.sandbox.confinement.readable_paths import needed_paths
from jobpool.sandbox.protocol.messages import (
    Beat,
    Done,
    Go,
    Load,
    Raised,
    Ready,
    RunJob,
    StartFailed,
)
from jobpool.sandbox.reset.after_attempt import AfterAttempt, Restored, set_mask
from jobpool.sandbox.reset.baseline import Baseline
from jobpool.sandbox.runs.marks import Marks
from jobpool.sandbox.system.own_fds import out_of_reach
from jobpool.sandbox.system.process_tree import become_subreaper

EXIT_START_FAILED = 1
EXIT_OWN_FAILURE = 70
"""EX_SOFTWARE: jobpool's own code in the child failed."""
_REPORT_S = 0.1
"""Time to report the end of an attempt before its time limit."""
_pthread_sigmask, _SIG_BLOCK = _signal.pthread_sigmask, _signal.SIG_BLOCK
_NO_ATTEMPT = ClosedChannel("no attempt is running in this child now")


class ChildFds(NamedTuple):
    """A child's own descriptors, in the order in which they are sent."""

    socket: int
    ticket: int
    mark: int
    output: int
    stack: int


class Inheritance(NamedTuple):
    """What a child has from the zygote whose copy it is."""

    load: Load
    application: Application | None
    """None: the child loads the application itself."""
    ours: tuple[int, ...]
    """The zygote's own descriptors, which the child closes."""
    sockets: tuple[int, ...]
    """Sockets that the application opened during its import."""
    needed: tuple[str, ...] = ()
    """Paths that the application needs, as far as is known."""


def child_main(fds: ChildFds, inherited: Inheritance) -> NoReturn:
    """Run as a child. Ends the process and never returns."""
    status = EXIT_OWN_FAILURE
    try:
        status = _live(fds, inherited)
    except BaseException:  # noqa: BLE001 - nothing may reach the zygote's code
        traceback.print_exc()
    finally:
        os._exit(status)


def _live(fds: ChildFds, inherited: Inheritance) -> int:
    setup.close_fds(inherited.ours)
    os.setsid()
    fds = ChildFds(*map(out_of_reach, fds))
    setup.redirect(fds.output)
    link = Link(socket(fileno=fds.socket), fds.ticket)
    go = link.wait_for_go()
    if go is None:
        return 0  # the supervisor died before it recorded us
    child = Child(fds, link, go)
    try:
        application = child.set_up(inherited)
    except BaseException as exc:  # noqa: BLE001 - hooks and imports are the user's
        link.send(_start_failure(exc))
        return EXIT_START_FAILED
    child.run(application)
    return 0


def _start_failure(exc: BaseException) -> StartFailed:
    if isinstance(exc, AppError):
        return StartFailed(str(exc), exc.traceback)
    error = raised(exc)
    return StartFailed(
        f"a new child could not be set up: {error.classes[0]}: {error.message}",
        error.traceback,
    )


class Child:
    """This process as the supervisor's child.

    Args:
        fds: its own descriptors.
        link: its connection to the supervisor.
        go: its identity and settings.
    """

    def __init__(self, fds: ChildFds, link: Link, go: Go) -> None:
        self._fds = fds
        self._link = link
        self._go = go
        self._lockdown = lockdown.absolute(go.lockdown)
        self._pid = os.getpid()
        self._soft_from_s: float | None = None
        self._soft_memory = SoftMemoryGuard()
        self._marks = Marks(fds.mark)
        self._usage = Usage()
        self._was_full = True
        """Whether there was a full restore since the last `Done`."""
        self._was_quick = False
        self._baseline: Baseline | AfterAttempt | None = None
        self._mask: set[int] = set()
        """The signals that are blocked while a handler runs."""
        self._deadline_s = float("inf")
        """Of the last attempt."""
        self._surprise = ""
        """What the present attempt has left behind so far."""
        self._encoding = PLAIN
        self._told = b""  # the arguments of the attempt, as they are stored or would be
        """Of the present or last attempt."""

    def set_up(self, inherited: Inheritance) -> Application:
        """Confine this process, run the application's hooks, and send `Ready`.

        Raises:
            BaseException: whatever a hook or an import raised.
        """
        cgroup.join(self._go.cgroup)
        become_subreaper()
        setup.replace_sockets(inherited.sockets)
        setup.write_stacks_to(self._fds.stack)
        setup.set_signals(self._on_soft_timeout, self._soft_memory.on_signal)
        watch_forks(self._become_copy)
        running.enter(_NO_ATTEMPT, None)
        running.set_restorer(self._between)
        reports.want(wanted=self._go.sends_reports)
        setup.raise_oom_score()
        scratch = lockdown.make_scratch(
            self._go,
            self._lockdown,
            inherited.needed or needed_paths(inherited.load.directory),
        )
        path = scratch.path if scratch else None
        lockdown.apply(self._lockdown, path, self._go.spared)
        application = inherited.application or load_application(
            inherited.load.app, inherited.load.directory, inherited.load.commands
        )
        setup.set_limits(lockdown.data_bound_bytes(self._go))
        log_context.install()  # around what the application has set at its import
        application.start_child()
        state = AfterAttempt if self._go.is_for_one else Baseline
        self._baseline = state(self._fds.output, self._fds.stack, scratch)
        self._baseline.restore()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._usage.begin()
        self._link.send(Ready(self._usage.rss_bytes()))
        return application

    def run(self, application: Application) -> None:
        """Run jobs until the supervisor retires this child or is gone."""
        link = self._link
        while (job := link.next_job(self._rest)) is not None:
            self._marks.begin(job.token)
            done, reported = self._attempt(application, job)
            try:
                with link.lock:
                    if reported is not None:
                        link.send(reported)
                    link.send(done)
            except OSError:
                return  # the supervisor is gone; the mark records the attempt
            if done.surprise or self._go.is_for_one:
                self._await_end()

    def _await_end(self) -> None:
        """Begin nothing more in this process, which the supervisor replaces."""
        while not (self._link.ended or self._link.retiring):
            self._link.take_in(wait=True)

    def _attempt(
        self, application: Application, job: RunJob
    ) -> tuple[Done, Beat | None]:
        encoding = PLAIN
        if job.codec is not None:
            encoding = Encoding(application.named_codec(), job.codec)
        self._encoding = encoding
        self._told = job.payload
        channel = AttemptChannel(
            self._link,
            self._go,
            job,
            self._pid,
            encoding,
            codec=application.named_codec,
        )
        began_s = time.monotonic()
        result, error = self._handle(application, job, channel)
        duration_s = time.monotonic() - began_s
        if os.getpid() != self._pid:
            _end_copy(error)
        reported = channel.close()
        running.enter(_NO_ATTEMPT, None)
        if error is not None and error.out_of_memory:
            # A library may have been refused memory half-way, as if it were killed.
            self._surprise = self._surprise or "it ran out of memory"
        output, surprise = self._reset(may_be_quick=self._link.has_jobs)
        used = self._usage.take(with_children=self._was_full)
        self._was_full = False
        if output or error is not None:
            told = msgspec.structs.replace(job, payload=self._told)
            output, error = redacted(output, error, told, application.redacted_texts)
            output, error = encoding.output(output), encoding.error(error)
        done = Done(
            seq=job.seq,
            token=job.token,
            ok=error is None,
            result=result,
            duration_s=duration_s,
            cpu_s=used.cpu_s,
            rss_bytes=used.rss_bytes,
            peak_rss_bytes=used.peak_rss_bytes,
            output=output,
            surprise=surprise,
            error=error,
            completed=channel.completed,
            began_s=began_s,
            added=channel.added() if error is None else [],
            reports=reports.take(),
        )
        return done, reported

    def _handle(
        self, application: Application, job: RunJob, channel: AttemptChannel
    ) -> tuple[bytes, Raised | None]:
        """Run the handler; return what it does as a result or an error.

        A signal handler that it has left must not raise in our code that follows: so
        signals wait in this thread until its state is restored. (Other threads may
        still receive them.) One may come just before they are blocked, even twice.
        """
        try:
            try:
                try:
                    result = self._invoke(application, job, channel)
                finally:
                    # In C: whatever it raises, they are blocked.
                    _pthread_sigmask(_SIG_BLOCK, DEFERRED)
            finally:
                self._soft_from_s = None
                self._soft_memory.disarm()
        except BaseException as exc:  # noqa: BLE001 - every end of a handler is data
            set_mask(signal.SIG_BLOCK, DEFERRED)
            # One soft limit may have interrupted the lines above; the other may still
            # come, in another thread.
            try:
                self._soft_from_s = None
                self._soft_memory.disarm()
            except (SoftTimeout, SoftMemory):
                self._soft_memory.disarm()
            return b"", described(exc, job.memory_bytes)
        return self._checked(result)

    def _invoke(
        self, application: Application, job: RunJob, channel: AttemptChannel
    ) -> Any:
        now_s = time.monotonic()
        self._deadline_s = now_s + job.timeout_s
        encoding, payload_bytes = self._encoding, len(job.payload)
        if encoding is not PLAIN:
            job = encoding.opened(job)
        current = running.Current(
            job_id=job.id,
            kind=job.kind,
            attempt=job.attempt,
            token=job.token,
            deadline_monotonic_s=self._deadline_s,
            checkpoint=decoded_checkpoint(job.checkpoint),
            channel=channel,
            limits=running.AttemptLimits(
                job.timeout_s, job.memory_bytes, job.max_attempts, job.failures
            ),
            tenant=job.tenant,
            key=job.key,
            priority=job.priority,
            scheduled=job.schedule,
            snoozes=job.snoozes,
            trace=job.trace,
            delivery=running.Delivery(job.pool, job.waited_s, payload_bytes),
        )
        running.enter(channel, current)
        log_context.bind()
        context = contextvars.copy_context()
        enter_span(context, job.trace, job.token)
        if job.soft_timeout_s is not None:
            # The supervisor's clock decides; this only keeps a signal meant for the
            # attempt before from hitting this one.
            self._soft_from_s = now_s + job.soft_timeout_s / 2
        self._soft_memory.arm(job.memory_soft_bytes)
        payload = job.payload
        if job.is_member:
            payload = with_results(payload, channel.step_results)
            if payload is not job.payload:  # results may be what nobody is shown
                self._told = payload if encoding is PLAIN else encoding.result(payload)
        result = context.run(
            application.invoke, job.kind, payload, self._go.result_max_bytes
        )
        return result if encoding is PLAIN else encoding.result(result)

    def _checked(self, result: Any) -> tuple[bytes, Raised | None]:
        if not isinstance(result, bytes):
            name = type(result).__name__
            return b"", failed("TypeError", f"the result is {name}, not JSON bytes")
        if len(result) > self._go.result_max_bytes:
            most = self._go.result_max_bytes
            message = (
                f"the result is {len(result)} bytes of JSON; at most {most} are kept: "
                "store the data elsewhere and return a reference to it"
            )
            return b"", raised(ResultTooLarge(message))
        return result, None

    def _rest(self) -> None:
        """Restore everything after a quick check, before this process waits."""
        if self._was_quick:
            _output, self._surprise = self._reset(may_be_quick=False)

    def _reset(self, *, may_be_quick: bool) -> tuple[bytes, str]:
        output, surprise, self._was_quick = self._restore(may_be_quick=may_be_quick)
        surprise, self._surprise = surprise or self._surprise, ""
        if problem := self._marks.renew(quick=self._was_quick):
            unmarked = f"its mark file cannot be written: {problem}"
            surprise = f"{surprise}; {unmarked}" if surprise else unmarked
        return output, surprise

    def _between(self) -> tuple[bytes, bool]:
        output, surprise, self._was_quick = self._restore(may_be_quick=True)
        self._surprise = self._surprise or surprise
        return output, not surprise

    def _restore(self, *, may_be_quick: bool) -> Restored:
        if self._baseline is None:
            return Restored(b"", "")
        for _ in range(2):  # a timer or thread of the handler's may raise in the first
            try:
                restored = self._baseline.restore(
                    may_be_quick=may_be_quick, until_s=self._deadline_s - _REPORT_S
                )
            except BaseException as exc:  # noqa: BLE001 - reported as a surprise
                self._was_full = True
                problem = raised(exc)
            else:
                self._was_full |= not restored.is_quick
                # Only now: a handler's own would raise here.
                set_mask(signal.SIG_SETMASK, self._mask)
                return restored
        return Restored(
            b"",
            "its process could not be restored to its first state: "
            f"{problem.classes[0]}"
            + ("" if self._encoding.name else f": {problem.message}"),
        )

    def _on_soft_timeout(self, _signum: int, _frame: FrameType | None) -> None:
        """Raise in the handler, once, and only in the attempt that was meant."""
        from_s = self._soft_from_s
        if from_s is None or time.monotonic() < from_s or os.getpid() != self._pid:
            return
        self._soft_from_s = None
        raise SoftTimeout(
            "the soft time limit has passed; save what matters and return, the hard "
            "limit follows"
        )

    def _become_copy(self) -> None:
        """Run in each process that a handler forks: it must not act as the child."""
        self._soft_from_s = None
        self._soft_memory.disarm()
        self._link.abandon()
        running.enter(ClosedChannel("this process was forked by a handler"), None)


def _end_copy(error: Raised | None) -> NoReturn:
    """End a forked copy of this process that returned from the handler."""
    if error is not None:
        print(error.traceback or error.message, file=sys.stderr)  # noqa: T201 - into the attempt's output
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0 if error is None else 1)
