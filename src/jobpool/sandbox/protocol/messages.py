"""Messages between supervisor, zygote and child, and their framing.

A frame is a 4-byte little-endian length and that many bytes of msgpack. Payloads,
results and checkpoints are opaque bytes inside. The receiving side never blocks on half
a frame: `Decoder` takes whatever has arrived.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.command import Command
from jobpool.core.application.reports import Report
from jobpool.core.application.step_results import MemberResult, WantedResults
from jobpool.core.config.settings import PAYLOAD_MAX_BYTES
from jobpool.core.isolation.measures import Enclosure, Lockdown
from jobpool.core.jobs.flow import AskedFlow, EnqueuedFlow
from jobpool.core.jobs.job import Enqueued, Job, NewJob, Scheduled
from jobpool.core.rules.admission import Admission

FRAME_MAX_BYTES = 16 * 2**20
"""More than any valid message: two capped payloads, output and tracebacks."""
OUTPUT_MAX_BYTES = 64 * 1024
"""Longest tail of an attempt's output that is kept."""
READ_BYTES = 32 * 1024
"""Some 1,500 of the smallest messages: a few milliseconds of work."""
READ_MAX_BYTES = 256 * 1024
_HEADER = struct.Struct("<I")
_HEADER_BYTES = _HEADER.size


class FrameError(Exception):
    """The other side sent something that is not one of our frames."""


# -- supervisor to zygote ----------------------------------------------------------


class Load(msgspec.Struct, tag="load", array_like=True):
    """The zygote's first message: load this application."""

    app: str
    directory: str
    preload: bool
    """False: the zygote loads nothing, and every child loads the application."""
    fence: str = ""
    """Path of the fence's file; "": there is no fence."""
    cgroup: str = ""
    """The zygote enters it; "": it stays where it was started."""
    commands: tuple[Command, ...] = ()
    """Handlers beside those of the application."""


class Fork(msgspec.Struct, tag="fork", array_like=True):
    """Fork a child; its descriptors are sent with this message.

    In order: its socket, its end of the ticket socket, its mark file, its output memfd,
    its stack memfd; the relay of its init, if it is enclosed.
    """

    slot: int
    enclosure: Enclosure = Enclosure.NONE


class Branch(msgspec.Struct, tag="branch", array_like=True):
    """Fork another zygote; its control socket is sent with this message.

    Only for one that has loaded the application itself (`Loaded`, `Load.preload`).
    """

    number: int
    """Returned with the answer."""


class Guard(msgspec.Struct, tag="guard", array_like=True):
    """End these too if the supervisor dies: children of a zygote that is gone."""

    members: list[tuple[int, int]]
    """Pids and start times."""


# -- zygote to supervisor ----------------------------------------------------------


class Loaded(msgspec.Struct, tag="loaded", array_like=True):
    """The application was loaded."""

    report: AppReport


class Branched(msgspec.Struct, tag="branched", array_like=True):
    """Another zygote was forked, which reports on its own socket; or it was not."""

    number: int
    pid: int
    """0: it was not."""
    message: str = ""
    """Why it was not."""


class LoadFailed(msgspec.Struct, tag="load_failed", array_like=True):
    """The application could not be loaded; the zygote ends."""

    message: str
    traceback: str


class Forked(msgspec.Struct, tag="forked", array_like=True):
    """The child exists, and its parent is the supervisor."""

    slot: int
    pid: int


class ForkFailed(msgspec.Struct, tag="fork_failed", array_like=True):
    """No child was forked; never the job's fault."""

    slot: int
    message: str


# -- supervisor to child -----------------------------------------------------------


class Go(msgspec.Struct, tag="go", array_like=True):
    """The child's identity is recorded: it may set itself up."""

    slot_name: str
    run_id: str
    memory_backstop_bytes: int
    """The highest memory limit of its attempts, for a loose RLIMIT_DATA; 0: none."""
    result_max_bytes: int
    checkpoint_max_bytes: int
    tmp_root: str
    """The child's temporary directory is below it; "": the child gets none."""
    store_url: str = ""
    """Without a password: `complete` requires a connection to this store."""
    lockdown: Lockdown = Lockdown()
    admission: Admission = Admission()
    """For jobs that a handler enqueues on its own connection."""
    cgroup: str = ""
    """The child's own cgroup; "": none, it stays in its zygote's."""
    hidden: tuple[str, ...] = ()
    """Files and directories that an enclosed child must not see."""
    spared: tuple[int, ...] = ()
    """Pids and thread ids whose CPU affinity it must not set."""
    is_for_one: bool = False
    """It gets one job: nothing that its handler leaves behind affects another."""
    payload_max_bytes: int = PAYLOAD_MAX_BYTES
    """For jobs that a handler enqueues."""
    pool_names: tuple[str, ...] = ()
    """Those that such a job may name."""
    sends_reports: bool = False
    """What an error tracker in it leaves with `Done` is sent."""


class RunJob(msgspec.Struct, tag="run", array_like=True, gc=False):
    """One attempt; it may begin when its ticket has been taken."""

    seq: int
    id: int
    token: int
    kind: str
    attempt: int
    payload: bytes
    checkpoint: bytes | None
    timeout_s: float
    soft_timeout_s: float | None
    memory_soft_bytes: int | None = None
    """`SoftMemory` is raised above it; None: never."""
    heartbeat_timeout_s: float | None = None
    """It is killed after this long without a beat; None: never for that."""
    memory_bytes: int = 0
    """Its limit, by which a MemoryError is judged; 0: unknown."""
    max_attempts: int = 0
    failures: int = 0
    """Of earlier attempts, since an operator last reset its budgets."""
    priority: int = 0
    key: str | None = None
    tenant: str | None = None
    codec: str | None = None
    """The codec that its data is encoded with; None: it is plain."""
    schedule: Scheduled | None = None
    """The tick that it is, if a schedule has made it."""
    snoozes: int = 0
    """Attempts in a row before this one that snoozed."""
    is_member: bool = False
    """It is a flow's: its payload may have placeholders for others' results."""
    trace: str | None = None
    """The trace context of its attempt, or `UNRECORDED`, as `core.jobs.trace` has them;
    None: nobody records traces."""
    pool: str = ""
    waited_s: float = 0.0
    """From when it was due until it was sent."""


class Answer(msgspec.Struct, tag="answer", array_like=True):
    """The reply to an `Ask`: what was stored or read, or the error's class and text."""

    ask: int
    enqueued: list[Enqueued] | None
    error_class: str = ""
    error: str = ""
    job_id: int = 0
    found: Job | None = None
    """The job that was read; None: there is none."""
    encoded: list[tuple[int, bytes, str | None, bytes]] = []
    """As of `KeyConflict`; never to a handler of a strict pool."""
    full: dict[str, str | int | float | None] = {}
    """What `QueueFull` says beside its text."""
    results: list[MemberResult] = []
    """Those that were asked for, as stored."""
    flow: EnqueuedFlow | None = None
    """The flow that was stored, or was there."""


class PermitAnswered(msgspec.Struct, tag="permit_answered", array_like=True):
    """The reply to an `AskPermit`."""

    n: int
    granted: bool
    retry_in_s: float | None = None
    """If it is not granted: when it is worth asking again; None: nobody knows."""
    refused: str = ""
    """Why it never will be granted; "": it may be, later."""


class Draining(msgspec.Struct, tag="draining", array_like=True):
    """A drain has begun: `current().stopping` is true from now on."""


class Retire(msgspec.Struct, tag="retire", array_like=True):
    """End after the present attempt."""


# -- child to supervisor -----------------------------------------------------------


class Ready(msgspec.Struct, tag="ready", array_like=True):
    """The child is set up and can take a job."""

    rss_bytes: int


class StartFailed(msgspec.Struct, tag="start_failed", array_like=True):
    """The child could not be set up (a hook raised, say); it ends."""

    message: str
    traceback: str


class Done(msgspec.Struct, tag="done", array_like=True, gc=False):
    """The end of an attempt as the child saw it."""

    seq: int
    token: int
    ok: bool
    result: bytes
    duration_s: float
    cpu_s: float
    rss_bytes: int
    """Resident memory now."""
    peak_rss_bytes: int
    """At least what the child could see of this attempt's peak."""
    output: bytes = b""
    """The tail of what it wrote; b"": it wrote nothing."""
    surprise: str = ""
    """What it left behind; a child with a surprise is replaced."""
    error: Raised | None = None
    completed: bool = False
    """The handler called `complete`; the store knows whether that was committed."""
    began_s: float = 0.0
    """Monotonic time at which it began."""
    added: list[NewJob] = []
    """Members that it adds to its own step."""
    reports: list[Report] = []
    """What an error tracker has left there to be sent."""


class Raised(msgspec.Struct, tag="raised", array_like=True):
    """An exception that left a handler."""

    classes: list[str]
    """Its class and bases, qualified, nearest first."""
    message: str
    traceback: str
    give_up: bool = False
    soft_timeout: bool = False
    retry_in_s: float | None = None
    out_of_memory: str = ""
    """How it comes from the memory limit; "": it does not."""
    snooze_s: float | None = None
    misfit: bool = False
    throttled: tuple[str, str] | None = None
    """The quota that it was throttled by, and the value that this counted by."""


class Beat(msgspec.Struct, tag="beat", array_like=True):
    """A heartbeat; None leaves a value as it was."""

    token: int
    progress: bytes | None
    checkpoint: bytes | None


class Ask(msgspec.Struct, tag="ask", array_like=True):
    """Store these jobs and answer after the commit, or read a job, or results."""

    ask: int
    token: int
    jobs: list[NewJob]
    reads: int | None = None
    """The id of the job to read; nothing is stored then."""
    results: WantedResults | None = None
    """The results of other members of its flow to read, likewise."""
    flow: AskedFlow | None = None
    """The jobs are the members of this flow, which is to be stored."""


class AskPermit(msgspec.Struct, tag="ask_permit", array_like=True):
    """Take one permit more for the running attempt; `PermitAnswered` follows."""

    token: int
    n: int
    """Names it, uniquely within the attempt."""
    quota: str
    value: str
    """What the quota counts by, as text; "": it has one bucket."""
    cost: int
    wait_s: float | None
    """How long the supervisor may wait until it is free; None: as its quota says."""


class ReturnPermit(msgspec.Struct, tag="return_permit", array_like=True):
    """Return a permit, or give up asking for it."""

    token: int
    n: int


class BlockBucket(msgspec.Struct, tag="block_bucket", array_like=True):
    """Somebody who knows has said to wait: nobody gets a permit of it meanwhile."""

    token: int
    quota: str
    value: str
    after_s: float


class RequestEnded(msgspec.Struct, tag="request_ended", array_like=True):
    """A request to a quota's service was answered, or has failed."""

    token: int
    quota: str
    value: str
    failed: bool


FromZygote = Loaded | LoadFailed | Forked | ForkFailed | Branched
AboutPermits = AskPermit | ReturnPermit | BlockBucket | RequestEnded
FromChild = Ready | StartFailed | Done | Beat | Ask | AboutPermits
ToChild = Go | RunJob | Answer | PermitAnswered | Draining | Retire
ToZygote = Load | Fork | Guard | Branch

_encoder = msgspec.msgpack.Encoder()


def encode(message: Any) -> bytes:
    """Return *message* as one frame.

    Raises:
        FrameError: it is longer than a frame may be.
    """
    body = _encoder.encode(message)
    if len(body) > FRAME_MAX_BYTES:
        raise FrameError(
            f"a message of {len(body)} bytes is over {FRAME_MAX_BYTES} bytes"
        )
    return _HEADER.pack(len(body)) + body


@cache
def prepared(expected: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return the decoder of these types, cached: making it takes longer than most jobs.

    A zygote calls it for its children, which inherit the cache.
    """
    return msgspec.msgpack.Decoder(expected)


class Decoder:
    """Turns received bytes into messages of the expected types.

    Args:
        expected: union of the message types that this side accepts.
    """

    def __init__(self, expected: Any) -> None:
        self._decoder = prepared(expected)
        self._buffer = bytearray()

    @property
    def wanted_bytes(self) -> int:
        """How much to read at once.

        Little, so that a child that floods us with tiny messages does not delay others
        for long; but all that is missing of a large message that has begun.
        """
        if len(self._buffer) < _HEADER_BYTES:
            return READ_BYTES
        length: int = _HEADER.unpack_from(self._buffer)[0]
        missing_bytes = _HEADER_BYTES + length - len(self._buffer)
        return min(max(READ_BYTES, missing_bytes), READ_MAX_BYTES)

    def feed(self, data: bytes) -> Iterator[Any]:
        """Take bytes and yield each complete message.

        Raises:
            FrameError: the bytes are not frames of the expected messages; the
                decoder must not be used any more.
        """
        buffer = self._buffer
        if buffer:
            buffer += data
        frames = buffer or data  # usually nothing is left from the last call
        start, end = 0, len(frames)
        unpack, decode = _HEADER.unpack_from, self._decoder.decode
        length = 0
        try:
            while end - start >= _HEADER_BYTES:
                (length,) = unpack(frames, start)
                if length > FRAME_MAX_BYTES:
                    raise FrameError(f"a frame announces {length} bytes")
                body = start + _HEADER_BYTES
                if end - body < length:
                    break
                start = body + length
                if length > READ_BYTES:
                    with memoryview(frames) as whole, whole[body:start] as part:
                        message = decode(part)
                else:  # a copy is faster than a view
                    message = decode(frames[body:start])
                yield message
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
            raise FrameError(
                f"a frame of {length} bytes is not a message: {exc}"
            ) from exc
        finally:
            if buffer:
                del buffer[:start]
            else:
                buffer += frames[start:]
