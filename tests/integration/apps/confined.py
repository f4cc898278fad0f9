"""A handler that explores its enclosure and tries to reach what is outside."""

# Written as an intruder writes:
# ruff: noqa: PTH101, PTH110, PTH114, PTH116, PTH123, PTH208, SIM115

import ctypes
import mmap
import multiprocessing
import os
import resource
import socket
import sqlite3
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import shared_memory
from pathlib import Path

from prying import app, errno_name

from jobpool.sandbox.confinement import mounts

OUTSIDE = os.open("/", os.O_RDONLY | os.O_DIRECTORY)


@app.handler
def surroundings_of_mine(_):
    """Report the process's surroundings."""
    return {
        "uid": os.getuid(),
        "groups": os.getgroups(),
        "pid": os.getpid(),
        "pids": sorted(int(n) for n in os.listdir("/proc") if n.isdigit()),
        "cwd": str(Path.cwd()),
        "places": sorted({os.environ["TMPDIR"], os.environ["HOME"]}),
        "root": sorted(os.listdir("/")),
        "shm": os.listdir("/dev/shm"),
        "environment": sorted(os.environ),
        "capabilities": capabilities(),
        "processes": resource.getrlimit(resource.RLIMIT_NPROC)[0],
    }


def capabilities():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(one.split()[1], 16) for one in lines if one.startswith("CapEff"))


@app.handler
def look_at(path):
    """Try to read a file or a directory, and to write to it."""
    answers = []
    for way in (os.listdir, lambda it: Path(it).read_bytes(), lambda it: open(it, "a")):
        try:
            way(path)
            answers.append("done")
        except OSError as error:
            answers.append(errno_name(error))
    return answers


@app.handler
def read_text(path):
    return Path(path).read_text()


@app.handler
def write_text(path):
    Path(path).write_text("written")


@app.handler
def touch_up(path):
    """Try to change what Landlock does not control."""
    answers = []
    for way in (lambda: os.chmod(path, 0o600), lambda: os.utime(path, (1, 1))):
        try:
            way()
            answers.append("done")
        except OSError as error:
            answers.append(errno_name(error))
    return answers


@app.handler
def look_through_descriptors(_):
    """Report the open directories, except its own /proc, and which is the root."""
    own = os.stat("/proc").st_dev
    files = [os.stat(fd) for fd in range(64) if os.path.exists(f"/proc/self/fd/{fd}")]
    places = [one for one in files if stat.S_ISDIR(one.st_mode) and one.st_dev != own]
    found = {(one.st_dev, one.st_ino) for one in places}
    root = os.stat("/")
    assert os.listdir(OUTSIDE) == os.listdir("/")
    return [sorted(found), (root.st_dev, root.st_ino)]


@app.handler
def leave(kind):
    """Leave something for the next job."""
    libc = ctypes.CDLL(None)
    made = {
        "segment": lambda: libc.shmget(1, 10, 0o1600),
        "queue": lambda: libc.msgget(1, 0o1600),
        "semaphores": lambda: libc.semget(1, 2, 0o1600),
    }
    if kind in made:
        assert made[kind]() >= 0
        return
    where = {"file": mounts.OWN + "/../left", "memory": "/dev/shm/left"}[kind]
    Path(where).write_text("secret")


KEPT = []
"""What handlers hold on to."""


@app.handler
def keep(kind):
    """Keep deleted files in TMPDIR open, so that their space stays taken."""
    sizes = [0] * 200 if kind == "many in flight" else [2**20]
    KEPT.append(socket.socketpair())
    for size in sizes:
        fd, path = tempfile.mkstemp()
        os.write(fd, b"x" * size)
        if kind == "mapping":
            KEPT.append(mmap.mmap(fd, size))
        elif "in flight" in kind:
            socket.send_fds(KEPT[0][0], [b"x"], [fd])
        if kind != "descriptor":
            os.close(fd)
        Path(path).unlink()


@app.handler
def live(_):
    """Do what ordinary handlers do."""
    assert ssl.create_default_context() is not None
    with tempfile.TemporaryFile() as file:
        file.write(b"x")
    program = [sys.executable, "-c", "import json; print(json.dumps([1]))"]
    assert subprocess.run(program, capture_output=True, check=True).stdout == b"[1]\n"
    assert subprocess.run(["sh", "-c", "echo $$ > note; cat note"], check=True)
    with sqlite3.connect("own.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(abs, [-1]) == [1]
    with multiprocessing.Manager() as manager:
        assert list(manager.list([1])) == [1]
    segment = shared_memory.SharedMemory(create=True, size=10)
    segment.close()
    segment.unlink()
    if os.path.islink("/tmp"):
        Path("/tmp/note").write_text("x")
    with open("/dev/stdout", "w") as out:
        print("said", file=out)
    return sorted(os.listdir())


@app.handler
def fill(mebibytes):
    """Fill the disk; return how much it took."""
    with open("much", "wb", buffering=0) as file:
        try:
            file.writelines(b"x" * 2**20 for _ in range(mebibytes))
        except OSError as error:
            return [file.tell() // 2**20, errno_name(error)]
    return [mebibytes, ""]


@app.handler
def breed(count):
    """Start threads; report how many there could be and how a fork fails then."""
    threading.stack_size(64 * 1024)
    may_end = threading.Event()
    started = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=may_end.wait)
            thread.start()
            started.append(thread)
    except RuntimeError:
        pass
    try:
        os.fork()
    except OSError as error:
        ended = errno_name(error)
    may_end.set()
    for thread in started:
        thread.join()
    return [len(started), ended]


@app.handler
def multiply(count):
    """Start programs and wait."""
    for _ in range(count):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    time.sleep(1000)


@app.handler
def leave_a_daemon_and(how):
    """Leave a process in a session of its own, then end as told."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "1000"])
        os._exit(0)
    os.wait()
    os._exit(3) if how == "exit" else os.kill(os.getpid(), how)
