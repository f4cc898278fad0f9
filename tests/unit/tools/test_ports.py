"""Ports of tests' servers: nobody else has them, and nobody gets them by chance."""

import contextlib
import socket

import pytest

from support.ports import RANGE, reserve_port


def test_a_reserved_port_is_free_and_not_one_that_the_kernel_gives_out():
    with contextlib.closing(reserve_port()) as port, socket.socket() as server:
        first, last = map(int, RANGE.read_text().split())
        assert not first <= port.number <= last
        server.bind(("127.0.0.1", port.number))


def test_no_other_process_gets_it_until_it_is_left():
    """Its name is the kernel's to give, once."""
    port = reserve_port()
    name = port.name.getsockname()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(name)
        port.close()
        other.bind(name)
