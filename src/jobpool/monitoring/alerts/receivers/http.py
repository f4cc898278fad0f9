"""One HTTP request to where a configuration says, and nowhere else.

The name is looked up once, and the address that was checked is the one that is used. No
redirect is followed and no proxy is asked, whatever the environment says. To look up
the name, to connect, and to ask take `LIMIT_S` each at most.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import queue
import socket
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from jobpool.monitoring.alerts.receivers.receiver import NotTaken

LIMIT_S = 10.0
_ANSWER_MAX = 300
"""So much of an answer is shown, in bytes."""
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_INTERNAL = tuple(
    map(
        ipaddress.ip_network,
        ("64:ff9b:1::/48", "fec0::/10", "::/96", "::ffff:0:0:0/96"),
    )
)
"""What some versions of Python take for addresses of the internet: of a network's own
NAT64, of a site, and two forms in which an IPv4 address may be within."""


def request(
    method: str,
    url: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    allow_private: bool = False,
) -> str:
    """Make one request; return the status line of its answer.

    Args:
        method: ``GET`` or ``POST``.
        url: as `core.config.readers.url` takes it.
        body: what is posted.
        headers: besides the usual ones.
        allow_private: addresses that are not of the internet will do as well.

    Raises:
        NotTaken: it could not be made, or its answer is not 2xx.
    """
    parts = urlsplit(url)
    is_safe = parts.scheme == "https"
    host = parts.hostname or ""
    port = parts.port or (443 if is_safe else 80)
    try:
        with (
            _opened(host, port, private=allow_private) as opened,
            _limited(opened),
            contextlib.closing(_Connection(host, port, opened, safe=is_safe)) as peer,
        ):
            path = parts.path or "/"
            target = f"{path}?{parts.query}" if parts.query else path
            peer.request(method, target, body=body, headers=dict(headers or {}))
            answer = peer.getresponse()
            status = f"{answer.status} {answer.reason}".strip()
            if answer.status // 100 == HTTPStatus.OK // 100:
                return status  # whatever else it says, or fails to say
            said = answer.read(_ANSWER_MAX).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError, RuntimeError) as exc:
        # ValueError: the connection was shut at the limit while it was read.
        # RuntimeError: no thread can be started.
        why = str(exc) or type(exc).__name__
        raise NotTaken(f"{host}:{port}: {why}") from exc
    if answer.status // 100 == HTTPStatus.MULTIPLE_CHOICES // 100:
        said = "a redirect, which is not followed: give the URL that it leads to"
    first = said.strip().splitlines()[0] if said.strip() else ""
    raise NotTaken(f"{host}:{port} said {status}{': ' if first else ''}{first}")


def is_public(address: str) -> bool:
    """Say whether an IP address is one of the internet, and of a single machine."""
    found: _Address = ipaddress.ip_address(address.partition("%")[0])
    inner: _Address | None = None
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    if inner is not None:
        return is_public(str(inner))
    if any(found in network for network in _INTERNAL):
        return False
    return found.is_global and not found.is_multicast


def _opened(host: str, port: int, *, private: bool) -> socket.socket:
    """Return a connection to the first address of a host that answers.

    Raises:
        NotTaken: one of its addresses is not allowed.
        OSError: none answers.
    """
    addresses = _looked_up(host, port)
    if not private:
        for address in addresses:
            if not is_public(address):
                shown = host if host == address else f"{host} is {address}, which"
                raise NotTaken(
                    f"{shown} is not an address of the internet; "
                    "nothing was sent. If it is meant: allow_private = true in [alerts]"
                )
    error = OSError("it has no address")
    for address in addresses:
        try:
            return socket.create_connection(
                (address, port), timeout=LIMIT_S / len(addresses)
            )
        except OSError as exc:
            error = exc
    raise error


def _looked_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host.

    A resolver has no limit but its own, which may be minutes: others would have taken
    the alert over meanwhile, and it would be told twice.

    Raises:
        OSError: it has none, or they are not known in time.
        UnicodeError: no host can have such a name.
    """
    found: queue.SimpleQueue[list[Any] | OSError | UnicodeError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as exc:
            found.put(exc)

    threading.Thread(target=look_up, name="jobpool-resolver", daemon=True).start()
    try:
        answer = found.get(timeout=LIMIT_S)
    except queue.Empty:
        raise TimeoutError(
            f"no address was found within {LIMIT_S:g} s; nothing was sent"
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return list(dict.fromkeys(str(one[4][0]) for one in answer))


class _Connection(http.client.HTTPConnection):
    """A connection over a socket that is open already."""

    def __init__(self, host: str, port: int, opened: socket.socket, *, safe: bool):
        super().__init__(host, port)
        opened.settimeout(LIMIT_S)
        if safe:
            import ssl  # noqa: PLC0415 - 10 ms and 2 MiB, which http:// does not need

            opened = ssl.create_default_context().wrap_socket(
                opened, server_hostname=host
            )
            self.default_port = 443  # else it would be in the Host header
        self.sock: Any = opened


@contextlib.contextmanager
def _limited(opened: socket.socket) -> Iterator[None]:
    """Shut a connection at the limit: a peer that sends a byte a second has it, too."""
    # TLS takes the socket over: another descriptor shuts the same connection.
    with opened.dup() as handle:

        def shut() -> None:
            with contextlib.suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(LIMIT_S, shut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # else it might shut what has the descriptor next
