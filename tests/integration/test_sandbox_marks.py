"""A slot's marks are all in their file between attempts, whatever was done to it."""

from __future__ import annotations

import os
import socket

import pytest

from jobpool.sandbox.marks import MARK, MARK_BYTES, Marks, open_marks, read_marks
from jobpool.sandbox.tickets import TICKET, Tickets

MEDDLING = {
    "written over": lambda fd: os.pwrite(fd, b"\1" * 16, 2048),
    "cut": lambda fd: os.ftruncate(fd, 3),
    "grown": lambda fd: os.ftruncate(fd, 10 * MARK_BYTES),
}


class Way:
    """Both ends of the tickets' way, and a mark file."""

    def __init__(self, path):
        self.path = path
        self.fd = open_marks(str(path))
        self.ours, self.childs = socket.socketpair()
        self.childs.setblocking(False)
        self.marks = Marks(self.fd)
        self.tickets = Tickets(self.childs.fileno(), self.marks)

    def issue(self, seq, token):
        """Send a ticket."""
        self.ours.send(TICKET.pack(seq, token))

    def begin(self, token):
        """Begin an attempt, as a child does."""
        self.issue(1, token)
        assert self.tickets.take() == 1
        self.marks.begin(token)

    def in_file(self):
        """Return the marks that are in the file."""
        return read_marks(self.path)

    def close(self):
        """Give everything back."""
        self.ours.close()
        self.childs.close()
        os.close(self.fd)


@pytest.fixture
def way(tmp_path):
    found = Way(tmp_path / "mark.0")
    yield found
    found.close()


def test_who_takes_a_ticket_has_marked_its_job(way):
    """The token is in the file as soon as the ticket is gone; no second step."""
    assert way.tickets.take() is None
    way.issue(3, 7)
    assert way.in_file() == set()
    assert way.tickets.take() == 3
    assert way.in_file() == {7}
    assert way.tickets.take() is None
    assert not way.tickets.ended


def test_the_ring_keeps_the_latest_tokens(way):
    """So many marks are kept as have room; the next one takes the oldest's place."""
    room = MARK_BYTES // MARK.size
    for token in range(1, room + 4):
        way.begin(token)
    assert way.in_file() == set(range(4, room + 4))


def test_a_ticket_whose_job_never_came_is_no_beginning(way):
    """When its supervisor is gone, the child takes the mark out again."""
    way.begin(7)
    way.issue(2, 8)
    assert way.tickets.take() == 2
    assert way.marks.renew() == ""
    assert way.in_file() == {7}


def test_the_end_of_the_way_is_told(way):
    """Whose supervisor is gone waits for no ticket."""
    way.ours.close()
    assert way.tickets.take() is None
    assert way.tickets.ended


@pytest.mark.parametrize("how", MEDDLING)
def test_what_was_written_over_is_written_again(way, how):
    """A handler may write anywhere in the file, cut it, or let it grow."""
    way.begin(7)
    MEDDLING[how](way.fd)
    assert way.marks.renew() == ""
    assert way.in_file() == {7}
    assert way.path.stat().st_size == MARK_BYTES


def test_who_begins_in_a_cut_file_is_not_killed_and_is_marked(way):
    """A page that is gone is there again before the next job has begun."""
    way.begin(7)
    os.ftruncate(way.fd, 0)
    way.begin(8)
    assert way.in_file() == {7, 8}


def test_a_mark_that_could_not_be_written_is_met_again(way):
    """The job begins; it is told between attempts, for as long as it is missing."""
    kept, reading = os.dup(way.fd), os.open(way.path, os.O_RDONLY)
    os.ftruncate(way.fd, 0)
    os.dup2(reading, way.fd)
    way.begin(7)
    assert way.in_file() is None
    assert way.marks.renew() == "Bad file descriptor"
    os.dup2(kept, way.fd)
    assert way.marks.renew() == ""
    assert way.in_file() == {7}
    os.close(kept)
    os.close(reading)


def test_what_has_taken_the_files_descriptor_is_not_written_to(way, tmp_path):
    """A handler closed it by mistake, and its next file has got the number."""
    other = tmp_path / "book"
    other.write_bytes(b"x" * MARK_BYTES)
    taking = os.open(other, os.O_RDWR)
    kept = os.dup(way.fd)
    os.dup2(taking, way.fd)
    way.begin(7)
    assert "another file's" in way.marks.renew()
    assert other.read_bytes() == b"x" * MARK_BYTES
    assert way.in_file() == {7}, "the kernel has put it into the right one"
    os.dup2(kept, way.fd)
    os.close(kept)
    os.close(taking)
