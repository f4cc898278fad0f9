"""What systemd is told, read from a real datagram socket."""

import os
import socket
import uuid

import pytest

from jobpool.cli.launch.systemd import ServiceManager
from jobpool.core.events.jobs import JobSucceeded
from jobpool.core.events.pools import PoolReloaded
from jobpool.core.events.supervisor import (
    Alarm,
    StoreBack,
    StoreTrouble,
    SupervisorDraining,
    SupervisorReady,
    SupervisorStopped,
)

READY = SupervisorReady(
    at_ms=0,
    pid=1,
    run_id="r",
    pools={"cpu": "2", "io": "8"},
    store="postgresql://shop:secret@db/shop",
    app="shop.jobs",
    version="1",
)
DRAINING = SupervisorDraining(at_ms=0, pid=1, reason="SIGTERM", running=3, drain_s=25)
STOPPED = SupervisorStopped(at_ms=0, pid=1)
RUNS = "STATUS=runs shop.jobs from postgresql://shop:***@db/shop"


class Listener:
    """systemd's end."""

    def __init__(self, address):
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._path = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket.bind(self._path)

    def heard(self):
        """Return the messages that have come since the last call."""
        messages = []
        while True:
            try:
                messages.append(self._socket.recv(65536).decode())
            except BlockingIOError:
                return messages

    def flood(self):
        """Send until no more is accepted; return how much was."""
        sent = 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            while True:
                try:
                    other.sendto(b"x", self._path)
                except BlockingIOError:
                    return sent
                sent += 1

    def close(self):
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def listener(request, tmp_path):
    name = f"@jobpool-{uuid.uuid4().hex}"
    made = Listener(str(tmp_path / "n") if request.param == "path" else name)
    yield made
    made.close()


@pytest.fixture
def manager(listener):
    made = ServiceManager(listener.address)
    yield made
    made.close()


def test_systemd_is_told_ready_and_stopping(listener, manager):
    """READY once all pools are up, STOPPING from the drain on, each with a status."""
    manager.observe(JobSucceeded(at_ms=0, id=1, kind="k", slot="cpu/0", attempt=1))
    assert listener.heard() == []
    manager.observe(READY)
    manager.observe(StoreTrouble(at_ms=0, error="no\nroute", again_in_s=1))
    manager.observe(StoreBack(at_ms=0, away_s=2))
    manager.observe(DRAINING)
    manager.observe(STOPPED)
    assert listener.heard() == [
        f"READY=1\n{RUNS}",
        "STATUS=the store cannot be used: no\\nroute",
        RUNS,
        "STOPPING=1\nSTATUS=draining (SIGTERM): 3 running, up to 25 s",
        "STOPPING=1\nSTATUS=drained",
    ]


def test_a_reload_ends_when_every_pool_has_it(listener, manager):
    """RELOADING carries the monotonic time, READY comes with the last pool."""
    manager.observe(READY)
    listener.heard()
    manager.reloading()
    first, second, third = listener.heard()[0].split("\n")
    assert (first, third) == ("RELOADING=1", "STATUS=reloading")
    assert second.startswith("MONOTONIC_USEC=")
    assert second.partition("=")[2].isdecimal()
    manager.observe(PoolReloaded(at_ms=0, pool="io"))
    assert listener.heard() == []
    manager.observe(PoolReloaded(at_ms=0, pool="cpu"))
    manager.observe(PoolReloaded(at_ms=0, pool="cpu"))
    assert listener.heard() == [f"READY=1\n{RUNS}"]


def test_a_refused_reload_ends_too(listener, manager):
    """Nothing waits for a reload that does not happen; the status says why."""
    manager.observe(READY)
    manager.observe(Alarm(at_ms=0, text="something else"))
    listener.heard()
    manager.reloading()
    manager.observe(Alarm(at_ms=0, text="not reloaded: the file is broken"))
    assert listener.heard()[1:] == ["READY=1\nSTATUS=not reloaded: the file is broken"]


def test_no_reload_before_the_start_or_after_the_end(listener, manager):
    """Neither may look ready: systemd would believe it."""
    manager.reloading()
    assert listener.heard() == []
    manager.observe(READY)
    manager.reloading()
    manager.observe(DRAINING)
    listener.heard()
    manager.reloading()
    manager.observe(PoolReloaded(at_ms=0, pool="io"))
    manager.observe(PoolReloaded(at_ms=0, pool="cpu"))
    manager.observe(StoreBack(at_ms=0, away_s=2))
    assert listener.heard() == []


def test_the_watchdog_is_fed_only_by_turns_of_the_loop(listener):
    """At every half of its time, not more often, however often the loop turns."""
    manager = ServiceManager(listener.address, watchdog_s=3.0)
    fed = []
    next_s = 10.0
    for tick in range(1000, 1600):
        now_s = tick / 100
        next_s = manager.turned(now_s)
        assert now_s < next_s <= now_s + 1.0
        fed += [(now_s, message) for message in listener.heard()]
    assert fed == [(at, "WATCHDOG=1") for at in (10.0, 11.5, 13.0, 14.5)]
    manager.close()


def test_a_short_watchdog_wakes_the_loop_in_time(listener):
    """The loop is asked to turn at every half of the watchdog's time."""
    manager = ServiceManager(listener.address, watchdog_s=0.5)
    assert manager.turned(7.0) == 7.25
    manager.close()


def test_without_a_watchdog_nothing_is_fed(listener, manager):
    """Then a turn only sends what has not been sent before."""
    assert manager.turned(5.0) == 6.0
    assert listener.heard() == []


def test_a_state_that_cannot_be_sent_is_sent_later_in_order(listener, manager):
    """A service manager that is busy for a while misses no state."""
    sent = listener.flood()
    manager.observe(READY)
    manager.observe(StoreTrouble(at_ms=0, error="away", again_in_s=1))
    manager.observe(DRAINING)
    assert len(listener.heard()) == sent
    manager.turned(1.0)
    assert [line.split("\n")[0] for line in listener.heard()] == [
        "READY=1",
        "STOPPING=1",
    ]


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/no/such/socket",
        "/" + "x" * 300,
        "@",
        "@\0\0",
        "vsock:2:1234",
        "relative",
        "/tmp",
        "/a\0b",
    ],
)
def test_an_address_without_a_listener_does_no_harm(address):
    """Whatever the variable holds: no error, and the supervisor works on."""
    manager = ServiceManager(address, watchdog_s=1.0)
    manager.observe(READY)
    manager.reloading()
    assert manager.turned(1.0) == 1.5
    manager.observe(DRAINING)
    manager.close()
    manager.observe(STOPPED)


def test_a_listener_that_goes_away_does_no_harm(listener, manager):
    """Its unsent messages are dropped."""
    manager.observe(READY)
    listener.close()
    manager.observe(DRAINING)
    assert manager.turned(1.0) == 2.0


@pytest.mark.parametrize(
    ("usec", "pid", "every_s"),
    [
        ("1000000", "", 0.5),
        ("1000000", "own", 0.5),
        ("1000000", "1", 1.0),
        ("0", "own", 1.0),
        ("-5", "own", 1.0),
        ("soon", "own", 1.0),
        ("", "own", 1.0),
    ],
)
def test_the_environment_names_the_watchdog_of_this_process(usec, pid, every_s):
    """A value for another process, or that is no number, is not our watchdog."""
    own = str(os.getpid()) if pid == "own" else pid
    env = {"NOTIFY_SOCKET": "", "WATCHDOG_USEC": usec, "WATCHDOG_PID": own, "A": "b"}
    manager = ServiceManager.from_environment(env)
    assert manager.turned(0.0) == every_s
    assert env == {"A": "b"}


def test_an_environment_without_systemd_is_left_alone():
    """Started by hand, there is no service manager."""
    env = {"PATH": "/bin"}
    ServiceManager.from_environment(env).observe(READY)
    assert env == {"PATH": "/bin"}
