"""Beasts that misuse the channel to the supervisor, or return what cannot be stored."""

# Written as users write:
# ruff: noqa: PTH115, PTH208, T201

import math
import os
import random
import socket
import time

from beasts import TIMED_OUT, TIMEOUT, Verdict, beast, failed, succeeds

from jobpool import GiveUp, RetryLater, current
from jobpool.sandbox.protocol.messages import Ask, Beat, Done, Ready, encode

GARBAGE = "killed because it sent what no child of jobpool sends"
LIAR = Verdict("crashed", GARBAGE, signal=9)


def channel():
    """Return this child's socket to the supervisor."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                return socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
    raise LookupError


def send_frame(data):
    """Send this to the supervisor and wait for the consequences."""
    channel().sendall(data)
    time.sleep(60)


def done(**other):
    word = Done(
        seq=10**9,
        token=1,
        ok=True,
        result=b"1",
        duration_s=0,
        cpu_s=0,
        rss_bytes=0,
        peak_rss_bytes=0,
    )
    for name, value in other.items():
        setattr(word, name, value)
    return encode(word)


@beast(LIAR)
def garbage():
    send_frame(b"\x02\x00\x00\x00{}")


@beast(LIAR)
def noise():
    send_frame(random.Random(7).randbytes(1 << 16))  # which announces 1.3 GiB


@beast(LIAR)
def endless_frame():
    send_frame(b"\xff\xff\xff\xff" + bytes(1000))


@beast(LIAR)
def deep_frame():
    send_frame((200_000).to_bytes(4, "little") + b"\x91" * 200_000)


@beast(LIAR)
def empty_frames():
    send_frame(bytes(4 * 1000))


@beast(TIMED_OUT, timeout=TIMEOUT)
def half_a_frame():
    send_frame(b"\x00\x00\xff\x00half")


@beast(LIAR)
def forged_end_of_another():
    send_frame(done(token=current().token + 1))


@beast(LIAR)
def forged_sequence():
    send_frame(done(token=current().token))


@beast(LIAR)
def forged_figures():
    send_frame(done(token=current().token, duration_s=math.nan, peak_rss_bytes=-1))


@beast(LIAR)
def ready_again():
    send_frame(encode(Ready(0)))


@beast(LIAR)
def asks_for_another():
    send_frame(encode(Ask(ask=1, token=current().token + 7, jobs=[])))


@beast(LIAR)
def asks_without_end():
    send_frame(encode(Ask(ask=1, token=current().token, jobs=[])) * 100)


@beast(TIMED_OUT, timeout=TIMEOUT)
def beats_without_end():
    word = encode(Beat(token=current().token, progress=b"1", checkpoint=None))
    with channel() as way:
        while True:
            way.sendall(word * 100)


@beast(TIMED_OUT, timeout=TIMEOUT)
def beats_of_another():
    send_frame(encode(Beat(token=current().token - 1, progress=b"1", checkpoint=b"1")))


@beast(TIMED_OUT, timeout=TIMEOUT)
def beats_no_json():
    send_frame(encode(Beat(token=current().token, progress=b"{", checkpoint=None)))


@beast(Verdict("crashed", "exited with"))
def closes_the_channel():
    channel().shutdown(socket.SHUT_RDWR)


@beast(Verdict("crashed"))
def closes_every_descriptor():
    os.closerange(0, 1024)


@beast(Verdict("crashed"))
def replaces_every_descriptor():
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(1024):
        if number != null:
            os.dup2(null, number)


@succeeds
def listens_in():
    """Make the channel blocking."""
    way = channel()
    way.setblocking(False)
    way.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    way.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    way.setblocking(True)


@beast(failed("TypeError"))
def result_is_no_json():
    return object()


@beast(failed("ResultTooLarge"))
def result_is_huge():
    return "x" * (3 << 20)


@beast(failed(""))
def result_within_itself():
    ring = []
    ring.append(ring)
    return ring


@beast(failed(""))
def result_is_deep():
    deep = None
    for _ in range(100_000):
        deep = [deep]
    return deep


@beast(failed(""))
def result_is_not_a_number():
    return math.nan


@beast(failed(""))
def result_is_no_unicode():
    return "\ud800"


@beast(failed(""))
def result_is_a_huge_number():
    return 10**5000


@succeeds
def result_lies_about_itself():
    class Liar(dict):
        def items(self):
            raise RuntimeError("dict of lies")

        keys = __iter__ = __len__ = items

    return Liar(a=1)


@beast(failed("GiveUp"))
def gives_up():
    raise GiveUp("\x00" * 100_000)


@beast(failed("RetryLater"))
def later_but_when():
    raise RetryLater("yesterday", "no")


@succeeds
def output_flood():
    for _ in range(200):
        os.write(1, b"x" * (1 << 20))


@beast(failed("ValueError", output="the end"))
def output_flood_and_failure():
    for _ in range(200):
        os.write(1, b"x" * (1 << 20))
    print("the end")
    raise ValueError


@beast(failed("ValueError", output="visible"))
def output_of_controls():
    print("\x1b[2J\x1b]0;title\x07\x00\ud800\r\nvisible")
    raise ValueError


@beast(failed("ValueError"))
def output_resized():
    os.ftruncate(1, 1 << 40)
    print("far away")
    raise ValueError


@beast(failed("ValueError"))
def output_reserved():
    try:
        os.posix_fallocate(1, 0, 300 << 20)
    finally:
        raise ValueError
