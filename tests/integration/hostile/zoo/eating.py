"""Beasts that take memory, each of another sort."""

import ctypes
import mmap
import os
import resource
import subprocess
import sys
import threading
import time
import zlib

from beasts import MEMORY, beast, eats, libc, out_of_memory

MIB = 2**20
PR_SET_DUMPABLE = 4


def fill(mebibytes):
    return b"x" * (mebibytes * MIB)


def touch(area):
    for place in range(0, len(area), 4096):
        area[place] = 1


@eats
def bytes_at_once():
    kept = [fill(1) for _ in range(140)]
    time.sleep(60)
    return len(kept)


@eats
def bytes_without_end():
    kept = []
    while True:
        kept.append(fill(4))


@eats
def many_objects():
    kept = []
    while True:
        kept.append({"key": len(kept)})


@eats
def text_doubled():
    text = "x" * 1024
    while True:
        text += text


@eats
def anonymous_map():
    areas = []
    while True:
        areas.append(mmap.mmap(-1, 4 * MIB, flags=mmap.MAP_PRIVATE))
        touch(areas[-1])


@eats
def shared_map():
    areas = []
    while True:
        areas.append(mmap.mmap(-1, 4 * MIB))
        touch(areas[-1])


@eats
def memory_file():
    fd = os.memfd_create("hoard")
    os.ftruncate(fd, 400 * MIB)
    area = mmap.mmap(fd, 400 * MIB)
    touch(area)
    time.sleep(60)


@eats
def from_malloc():
    while area := libc.malloc(4 * MIB):
        ctypes.memset(area, 1, 4 * MIB)
    time.sleep(60)  # until it is killed


libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = (ctypes.c_size_t,)


@eats
def zip_bomb():
    data, kept = zlib.compress(bytes(16 * MIB)), []
    while True:
        kept.append(zlib.decompress(data))


@eats
def in_a_thread():
    threading.Thread(target=bytes_without_end).start()
    time.sleep(60)


@eats
def in_copies():
    for _ in range(3):
        if os.fork() == 0:
            kept = fill(48)
            time.sleep(len(kept))
    time.sleep(60)


@eats
def in_a_daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        kept = fill(160)
        time.sleep(len(kept))
    time.sleep(60)


@eats
def in_programs():
    code = "import time; kept = b'x' * (64 << 20); time.sleep(60)"
    for _ in range(3):
        subprocess.Popen([sys.executable, "-S", "-c", code], env={})
    time.sleep(60)


@eats
def without_its_limits():
    """It lifts its own limits; others bound it from outside."""
    for limit in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        try:
            resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except ValueError:
            continue
    bytes_without_end()


@eats
def not_measurable():
    """Only root can read its memory or its copies' memory."""
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    for _ in range(2):
        if os.fork() == 0:
            break
    kept = fill(64)
    time.sleep(len(kept))


@beast(out_of_memory("asked for more than ", error="MemoryError"), memory=MEMORY)
def a_terabyte():
    return len(bytearray(1 << 40))
