"""Which user of this host has opened a connection: asked of the kernel.

Cookies belong to a host, not to a port: a browser sends ours to whatever listens at
another port of 127.0.0.1, also if that is somebody else's. So a session that was opened
from this host is the user's who has opened it, and a cookie in other hands opens
nothing.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct

from starlette.requests import HTTPConnection

_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_ALL_STATES = 0xFFFFFFFF
_NO_COOKIE = b"\xff" * 8
_HEADER = struct.Struct("=IHHII")
_REQUEST_HEAD = struct.Struct("=BBBBI")
_STATE_AT, _OWNER_AT = 1, 64
"""In an answer: the owner and the inode are after four bytes, the socket's identity,
and three numbers."""
_OWNER = struct.Struct("=II")
_LISTENS = 10
_ANSWER_MAX = 4096
_PATIENCE_S = 1.0
_LOOPBACK = "127.0.0.1"


Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def ip(text: str) -> Ip | None:
    """Return an address, plainly: one of IPv4 as that; None: it is none."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return found if mapped is None else mapped


def is_here(address: str) -> bool:
    """Say whether an address is this host's own: anybody here can ask from it."""
    found = ip(address)
    if found is None or found.is_loopback:
        return found is not None
    family = socket.AF_INET if found.version == 4 else socket.AF_INET6  # noqa: PLR2004
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.bind((str(found), 0))
    except OSError:
        return False
    return True


def uid_of(request: HTTPConnection) -> int | None:
    """Return the user whose process has made a request; None: that cannot be seen.

    It is seen of connections from this host's own addresses only.
    """
    client, server = request.client, request.scope.get("server")
    if client is None or not server or server[1] is None:
        return None
    ours, theirs = ip(server[0]), ip(client.host)
    if ours is None or theirs is None or not is_here(client.host):
        return None
    return _uid((theirs.packed, client.port), (ours.packed, server[1]))


def names_owners() -> bool:
    """Say whether the kernel tells whose a connection is: asked about one of our own.

    Some kernels have no such answers, and some sandboxes forbid the question.
    """
    try:
        with (
            socket.create_server((_LOOPBACK, 0)) as listening,
            socket.create_connection(listening.getsockname(), _PATIENCE_S) as ours,
        ):
            packed = ipaddress.ip_address(_LOOPBACK).packed
            ports = ours.getsockname()[1], listening.getsockname()[1]
            return _uid((packed, ports[0]), (packed, ports[1])) == os.geteuid()
    except OSError:  # nor does it let anybody connect, so nobody comes in that way
        return False


def _uid(theirs: tuple[bytes, int], ours: tuple[bytes, int]) -> int | None:
    """Ask the kernel for the owner of their socket."""
    (their_host, their_port), (our_host, our_port) = theirs, ours
    family = socket.AF_INET if len(their_host) == 4 else socket.AF_INET6  # noqa: PLR2004
    body = (
        _REQUEST_HEAD.pack(family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES)
        + struct.pack(">HH", their_port, our_port)
        + their_host.ljust(16, b"\0")
        + our_host.ljust(16, b"\0")
        + bytes(4)
        + _NO_COOKIE
    )
    head = _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.settimeout(_PATIENCE_S)
            kernel.sendto(head + body, (0, 0))
            answer = kernel.recv(_ANSWER_MAX)
    except OSError:  # this kernel does not tell
        return None
    _, kind, *_ = _HEADER.unpack_from(answer)
    if kind != _BY_FAMILY or len(answer) < _HEADER.size + _OWNER_AT + _OWNER.size:
        return None
    uid, inode = _OWNER.unpack_from(answer, _HEADER.size + _OWNER_AT)
    # One that its process has closed has no inode, and root as its owner. One that
    # listens at their port is found in the place of one that is gone.
    if not inode or answer[_HEADER.size + _STATE_AT] == _LISTENS:
        return None
    return int(uid)
