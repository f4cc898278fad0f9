"""The log writer never makes its caller wait, loses no count, and stays in order."""

import errno
import fcntl
import io
import json
import math
import os
import threading

import pytest

from jobpool.cli.launch.log import LogWriter, renderer
from jobpool.core.event_lines import json_line
from jobpool.core.events.event import Level
from jobpool.core.events.jobs import JobSucceeded
from jobpool.core.events.pools import ChildStarted
from jobpool.core.events.supervisor import Alarm
from support.waiting import wait_until


def done(number):
    return JobSucceeded(at_ms=0, id=number, kind="k", slot="cpu/0", attempt=1)


def written(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("count", [500, 4000])
def test_everything_is_written_in_order(count):
    """Everything that fits the queue is written, each event on one line.

    4,000 successes are more than the busiest supervisor reports while the writer rests.
    """
    stream = io.StringIO()
    log = LogWriter(stream, json_line)
    for number in range(count):
        log.observe(done(number))
    assert log.close(timeout_s=20)
    assert [row["id"] for row in written(stream)] == list(range(count))


def test_events_below_the_level_are_not_written():
    """--log-level warning leaves successes and children out."""
    stream = io.StringIO()
    log = LogWriter(stream, json_line, level=Level.WARNING)
    log.observe(done(1))
    log.observe(ChildStarted(at_ms=0, slot="cpu/0", pid=5))
    log.observe(Alarm(at_ms=0, text="look"))
    assert log.close(timeout_s=20)
    assert [row["event"] for row in written(stream)] == ["alarm"]


def test_a_stalled_log_reader_costs_lines_and_never_time():
    """With a full pipe, observe() returns.

    Later the exact number of dropped lines is logged.
    """
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    stream = os.fdopen(writer, "w", encoding="utf-8")
    log = LogWriter(stream, json_line, queue_max=1000)
    for number in range(200_000):
        log.observe(done(number))
    log.observe(Alarm(at_ms=0, text="important"))  # would hang here
    assert not log.close(timeout_s=0.05)
    rows = []
    with os.fdopen(reader, encoding="utf-8") as lines:
        thread = threading.Thread(target=lambda: rows.extend(map(json.loads, lines)))
        thread.start()
        log.close(timeout_s=20)
        stream.close()
        thread.join(20)
    kinds = [row["event"] for row in rows]
    dropped = sum(row.get("lines", 0) for row in rows)
    assert kinds.count("alarm") == 1
    assert dropped > 100_000
    assert kinds.count("job_succeeded") + dropped == 200_000


def test_an_end_while_the_machine_stands_still_costs_no_line(monkeypatch):
    """The time to write the last lines passes, and nothing runs meanwhile."""
    stream, held = io.StringIO(), threading.Event()
    log = LogWriter(stream, lambda event: held.wait(20) and json_line(event))
    log.observe(done(1))
    join, waits = log._thread.join, []

    def stands_still(timeout_s):
        waits.append(timeout_s)
        if len(waits) > 1:
            held.set()
            join(timeout_s)

    monkeypatch.setattr(log._thread, "join", stands_still)
    assert log.close(timeout_s=400)
    assert [row["id"] for row in written(stream)] == [1]


@pytest.mark.parametrize("bug", [KeyError("kind"), UnicodeError("\udcff")])
def test_a_line_that_cannot_be_made_costs_that_line_alone(bug):
    """It ended the log, and nothing said so."""

    def render(event):
        if isinstance(event, JobSucceeded) and event.id == 2:
            raise bug
        return json_line(event)

    stream = io.StringIO()
    log = LogWriter(stream, render)
    for number in (1, 2, 3):
        log.observe(done(number))
    assert log.close(timeout_s=20)
    first, told, last = written(stream)
    assert (first["id"], last["id"], told["event"]) == (1, 3, "alarm")
    assert told["text"].startswith(
        f"a line about job_succeeded is lost: {type(bug).__name__}: "
    )


class SmallDisk(io.RawIOBase):
    """A file on a disk that may be full; a write takes what there is room for."""

    def __init__(self):
        self.room, self.data, self.refused = 0, b"", 0

    def writable(self):
        return True

    def write(self, data):
        if not self.room:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = bytes(data[: self.room])
        self.room -= len(taken)
        self.data += taken
        return len(taken)


@pytest.mark.parametrize("lines", [1, 1.5, 3])
@pytest.mark.parametrize("is_buffered", [True, False])
def test_a_full_disk_costs_the_lines_of_its_time_and_cuts_none(is_buffered, lines):
    """What was begun is completed when there is room, and what is lost is counted.

    Also where Python does not buffer (PYTHONUNBUFFERED), as in many containers.
    """
    disk = SmallDisk()
    raw = io.BufferedWriter(disk) if is_buffered else disk
    stream = io.TextIOWrapper(raw, encoding="utf-8", write_through=not is_buffered)
    log = LogWriter(stream, json_line)
    disk.room = int(lines * len(json_line(done(1)) + "\n"))
    for number in range(1, 10):
        log.observe(done(number))
    wait_until(lambda: disk.refused, 20, "a full disk")
    log.observe(done(10))
    refused = disk.refused
    wait_until(lambda: disk.refused > refused, 20, "another try")
    disk.room = 1_000_000
    log.observe(Alarm(at_ms=0, text="room"))
    assert log.close(timeout_s=20)
    rows = [json.loads(line) for line in disk.data.splitlines()]
    whole = [row["id"] for row in rows if row["event"] == "job_succeeded"]
    assert whole == list(range(1, math.ceil(lines) + 1))
    assert [row["event"] for row in rows].count("alarm") == 1
    assert sum(row.get("lines", 0) for row in rows) == 10 - len(whole)


def test_a_reader_that_goes_away_is_survived():
    """A closed pipe ends the writing, not the supervisor."""
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w", encoding="utf-8")
    log = LogWriter(stream, json_line)
    os.close(reader)
    log.observe(done(1))
    wait_until(lambda: not log._thread.is_alive(), 20, "the writer gave up")
    for number in range(20_000):
        log.observe(done(number))
    log.close(timeout_s=1)
    stream.close()


def test_only_the_verdict_is_coloured_and_only_on_a_terminal():
    """The writer adds all colours; nothing in an event can add any."""
    event = Alarm(at_ms=0, text="\x1b[31mred")
    assert renderer("human", colour=False)(event).count("\x1b") == 0
    line = renderer("human", colour=True)(event)
    assert line.count("\x1b") == 2
    assert "\x1b[1;31malarm\x1b[0m  \\x1b[31mred" in line
