"""The limit program: the bare lease-pipe-settle cycle, only the commit guaranteed.

SQLite with synchronous=FULL, one thread that settles and leases in one transaction, two
forked children, msgpack frames, some jobs sent ahead. Its figures are the most that
this design can reach on this machine in Python. It has no limits, crash accounting,
retries, evidence, output or recovery. Producers wake it through a FIFO, so that it is
idle until there is work.
"""

from __future__ import annotations

import os
import selectors
import socket
import sqlite3
import struct
import sys
import threading
from collections import deque

import msgspec
import rig

AHEAD = 16
BATCH = 500
LENGTH = struct.Struct("<I")
PATH = str(rig.directory() / "limit.db")
BELL = rig.directory() / "limit.bell"
_encode, _decode = msgspec.msgpack.encode, msgspec.msgpack.decode


def connect() -> sqlite3.Connection:
    """Open the database, durable at every commit."""
    database = sqlite3.connect(PATH, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute(
        "CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, kind TEXT,"
        " payload TEXT, state INTEGER DEFAULT 0, result BLOB)"
    )
    database.execute("CREATE INDEX IF NOT EXISTS due ON jobs (id) WHERE state = 0")
    return database


class Limit(rig.Contender):
    """A table, and this program again as the supervisor."""

    def __init__(self, wish: dict[str, object]) -> None:
        super().__init__(wish)
        self.database, self.bell = connect(), -1

    def put(self, kind: str, argument: str) -> None:
        """Insert a row and commit."""
        self.put_many(kind, argument, 1)

    def put_many(self, kind: str, argument: str, count: int) -> None:
        """Insert a thousand rows per commit."""
        insert = "INSERT INTO jobs (kind, payload) VALUES (?, ?)"
        for begin in range(0, count, 1000):
            self.database.execute("BEGIN IMMEDIATE")
            rows = [(kind, argument)] * min(1000, count - begin)
            self.database.executemany(insert, rows)
            self.database.execute("COMMIT")
        if self.bell >= 0:
            os.write(self.bell, b"!")

    def work(self) -> None:
        """Start the supervisor."""
        os.mkfifo(BELL)
        self.bell = os.open(BELL, os.O_RDWR)
        self.spawn(sys.executable, __file__, "--work", str(self.workers))


def frames(buffer: bytearray) -> list[bytes]:
    """Take the complete frames off a buffer."""
    found, at = [], 0
    while len(buffer) - at >= LENGTH.size:
        end = at + LENGTH.size + LENGTH.unpack_from(buffer, at)[0]
        if end > len(buffer):
            break
        found.append(bytes(buffer[at + LENGTH.size : end]))
        at = end
    del buffer[:at]
    return found


def framed(message: object) -> bytes:
    """Encode a message with its length."""
    body = _encode(message)
    return LENGTH.pack(len(body)) + body


def child(link: socket.socket) -> None:
    """Run jobs one after the other, and answer each."""
    buffer = bytearray()
    while data := link.recv(2**18):
        buffer += data
        for frame in frames(buffer):
            job_id, kind, argument = _decode(frame)
            result = rig.HANDLERS[kind](argument)
            link.sendall(framed((job_id, _encode(result))))
    os._exit(0)


class Store(threading.Thread):
    """Settle and lease in one transaction, whenever there is something to do."""

    def __init__(self, bell: socket.socket) -> None:
        super().__init__(daemon=True)
        self.database, self.bell = connect(), bell
        self.wanted = threading.Event()
        self.ends: deque[tuple[bytes, int]] = deque()
        self.leased: deque[tuple[int, str, str]] = deque()

    def run(self) -> None:
        """Serve forever."""
        take = (
            "UPDATE jobs SET state = 1 WHERE id IN (SELECT id FROM jobs WHERE state = 0"
            " ORDER BY id LIMIT ?) RETURNING id, kind, payload"
        )
        settle = "UPDATE jobs SET state = 2, result = ? WHERE id = ? AND state = 1"
        while self.wanted.wait():
            self.wanted.clear()
            ends = [self.ends.popleft() for _ in range(len(self.ends))]
            room = BATCH - len(self.leased)
            self.database.execute("BEGIN IMMEDIATE")
            self.database.executemany(settle, ends)
            rows = self.database.execute(take, (room,)).fetchall() if room else []
            self.database.execute("COMMIT")
            if rows:
                self.leased += rows
                self.bell.send(b"!")


def supervise(workers: int) -> None:
    """Keep the children busy."""
    bell, theirs = socket.socketpair()
    links: list[socket.socket] = []
    for _ in range(workers):
        ours, childs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            child(childs)
        childs.close()
        links.append(ours)
    store = Store(theirs)
    store.wanted.set()
    store.start()
    selector = selectors.DefaultSelector()
    selector.register(bell, selectors.EVENT_READ)
    selector.register(os.open(BELL, os.O_RDWR), selectors.EVENT_READ)
    buffers = {link: bytearray() for link in links}
    out = dict.fromkeys(links, 0)
    for link in links:
        selector.register(link, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            data = os.read(key.fd, 2**18)
            if key.fileobj in buffers:
                link: socket.socket = key.fileobj  # type: ignore[assignment]
                buffers[link] += data
                done = [_decode(frame) for frame in frames(buffers[link])]
                out[link] -= len(done)
                store.ends += [(result, job_id) for job_id, result in done]
        for link in links:
            count = min(AHEAD - out[link], len(store.leased))
            if count > 0:
                out[link] += count
                jobs = [store.leased.popleft() for _ in range(count)]
                link.sendall(b"".join(map(framed, jobs)))
        if len(store.leased) < BATCH // 2 or len(store.ends) > BATCH // 2:
            store.wanted.set()


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        supervise(int(sys.argv[2]))
    else:
        rig.main(Limit)
