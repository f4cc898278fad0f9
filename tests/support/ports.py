"""TCP ports on the loopback for servers that come later, go and come back."""

import random
import socket
from pathlib import Path
from typing import NamedTuple

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORTS = 10_000
LEAST = 1024
_CHANCE = random.SystemRandom()


class ReservedPort(NamedTuple):
    """A port that nobody takes by chance, also while no server listens on it.

    Whoever asks the kernel for any port, or connects, gets one of the kernel's own
    range; this one is below it. And a name that only one process can have keeps other
    tests away.
    """

    number: int
    name: socket.socket

    def close(self) -> None:
        """Leave it to others."""
        self.name.close()


def reserve_port() -> ReservedPort:
    """Return a port that is free; to be closed when it is needed no longer."""
    kernels = int(RANGE.read_text().split()[0])
    ours = range(max(LEAST, kernels - PORTS), kernels) or range(LEAST, 2**16)
    while True:
        number = _CHANCE.choice(ours)
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0jobpool-tests-port-{number}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", number))
        except OSError:
            name.close()
        else:
            return ReservedPort(number, name)
