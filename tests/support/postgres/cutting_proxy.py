"""A TCP proxy on the loopback that loses what it carries, when the test says so."""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from support.ports import reserve_port

CHUNK_BYTES = 65536
CLOSE_S_MAX = 30
TURNS = 10
UP, DOWN = "up", "down"  # to the server; to the client


class Link:
    """One client's connection and the one to the server behind it."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.is_answer_lost = False
        self.tail = b""

    def cut(self) -> None:
        """End both sides at once, with a reset as from a machine that is gone."""
        for writer in (self.client, self.server):
            if writer is not None:
                reset(writer)


class CuttingProxy:
    """Carry bytes to a server on the loopback until told otherwise.

    Use it as a context manager. All methods may be called from any thread, and
    take effect for the open connections and for new ones, unless they say otherwise.

    Args:
        port: the server's, on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._loop = asyncio.new_event_loop()
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._delay_s = 0.0
        self._budget: dict[str, int | None] = {UP: None, DOWN: None}
        self._pattern: bytes | None = None
        self._is_delivered = False
        self._is_silent = False
        self.cuts = 0
        """How many connections were cut so far."""
        self._listener: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()
        self._reserved = reserve_port()
        self.port = self._reserved.number
        self._do(self._listen)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what a test can say -----------------------------------------------------------

    def url(self, url: str) -> str:
        """Return a server's TCP URL with this proxy in the server's place."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    def cut(self) -> int:
        """Cut all connections now; return how many there were."""
        return self._do(self._cut_all)

    def cut_after(self, count: int, direction: str) -> None:
        """Cut the connection that carries byte *count* from now, before that byte."""

        async def arm() -> None:
            self._budget[direction] = count

        self._do(arm)

    def cut_at(self, pattern: bytes, *, delivered: bool) -> None:
        """Cut the connection whose client sends *pattern* next, once.

        Args:
            pattern: a part of what the client sends, such as ``b"COMMIT"``.
            delivered: the server gets it and answers, and the answer is lost; else it
                never gets it.
        """

        async def arm() -> None:
            self._pattern, self._is_delivered = pattern, delivered
            self._is_silent = False

        self._do(arm)

    def swallow_answer_to(self, pattern: bytes) -> None:
        """Pass on the first *pattern* that a client sends, and nothing back to it."""

        async def arm() -> None:
            self._pattern, self._is_delivered = pattern, True
            self._is_silent = True

        self._do(arm)

    def black_hole(self) -> None:
        """Accept everything and pass on nothing, until `heal`."""

        async def stop() -> None:
            self._flows.clear()

        self._do(stop)

    def refuse(self) -> None:
        """Cut all connections, and refuse new ones as a machine without server."""

        async def stop() -> None:
            await self._stop_listening()
            await self._cut_all()

        self._do(stop)

    def accept_no_more(self) -> None:
        """Refuse new connections; those that are open go on."""
        self._do(self._stop_listening)

    def delay(self, seconds: float) -> None:
        """Hold back every piece for so long."""

        async def slow() -> None:
            self._delay_s = seconds

        self._do(slow)

    def heal(self) -> None:
        """Carry bytes as if nothing had happened.

        Connections that were cut stay cut.
        """

        async def mend() -> None:
            self._delay_s, self._pattern = 0.0, None
            self._budget = {UP: None, DOWN: None}
            self._flows.set()
            if self._listener is None:
                await self._listen()

        self._do(mend)

    @property
    def open_connections(self) -> int:
        """How many connections it carries now."""
        return len(self._links)

    @property
    def is_armed(self) -> bool:
        """Whether a cut that was ordered is still to come."""
        return self._pattern is not None or any(
            left is not None for left in self._budget.values()
        )

    def close(self) -> None:
        """Cut everything and end the thread."""
        if not self._thread.is_alive():
            return
        self._do(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S_MAX)
        self._reserved.close()

    # -- in its own thread -------------------------------------------------------------

    def _do(self, make: Callable):
        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(CLOSE_S_MAX)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, reuse_address=True
        )

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            for plug in listener.sockets:
                self._loop.remove_reader(plug.fileno())
            await (
                _turns()
            )  # asyncio loses a connection accepted just now, if it is closed
            listener.close()

    async def _cut_all(self) -> int:
        links = list(self._links)
        for link in links:
            self._cut(link)
        return len(links)

    async def _end(self) -> None:
        await self._stop_listening()
        await self._cut_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # One that was closed waits for a client that does not read: only the loop
        # knows it still.
        for transport in list(self._loop._transports.values()):
            transport.abort()
        await _turns()  # what was aborted is closed

    def _cut(self, link: Link) -> None:
        self.cuts += 1
        self._links.discard(link)
        link.cut()

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        link = Link(writer)
        self._links.add(link)
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            await self._flows.wait()
            up, link.server = await asyncio.open_connection("127.0.0.1", self._target)
            await asyncio.gather(
                self._pump(link, reader, link.server, UP),
                self._pump(link, up, writer, DOWN),
            )
        except (OSError, asyncio.CancelledError):
            link.cut()  # as the server, or the test, has ended it
        finally:
            self._links.discard(link)
            self._tasks.discard(task)
            for one in (link.client, link.server):
                if one is not None:
                    one.close()

    async def _pump(
        self,
        link: Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        direction: str,
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._flows.wait()
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            kept = self._within_budget(data, direction)
            if direction == UP and self._is_met(link, data):
                if not self._is_delivered:
                    self._cut(link)
                    return
                link.is_answer_lost = True
            if direction == DOWN and link.is_answer_lost:
                if self._is_silent:
                    continue
                self._cut(link)
                return
            writer.write(kept)
            await writer.drain()
            if len(kept) < len(data):
                self._cut(link)
                return
        if not writer.is_closing():
            writer.write_eof()

    def _within_budget(self, data: bytes, direction: str) -> bytes:
        left = self._budget[direction]
        if left is None:
            return data
        if left > len(data):
            self._budget[direction] = left - len(data)
            return data
        self._budget[direction] = None
        return data[: max(0, left - 1)]

    def _is_met(self, link: Link, data: bytes) -> bool:
        """Say whether the pattern is complete now, and forget it if so."""
        if self._pattern is None:
            return False
        seen = link.tail + data
        link.tail = seen[-len(self._pattern) + 1 :]
        if self._pattern not in seen:
            return False
        self._pattern = None
        return True


async def _turns() -> None:
    """Let the loop do its pending work, which takes it a few turns."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a reset instead of a goodbye."""
    plug = writer.get_extra_info("socket")
    if plug is not None and not writer.is_closing():
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
