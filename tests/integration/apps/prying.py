"""A handler that tries to get out of its child, one way at a time."""

# Written as an intruder writes:
# ruff: noqa: PTH123, PTH102, PTH108, PTH104

import ctypes
import multiprocessing
import os
import platform
import signal
import socket
import struct
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fake_application import FakeApplication

app = FakeApplication()
_libc = ctypes.CDLL(None, use_errno=True)
_NUMBERS = {
    "x86_64": {
        "ptrace": 101,
        "bpf": 321,
        "reboot": 169,
        "clone": 56,
        "clone3": 435,
        "unshare": 272,
        "keyctl": 250,
        "setns": 308,
        "ioprio_set": 251,
        "sched_setattr": 314,
    },
    "aarch64": {
        "ptrace": 117,
        "bpf": 280,
        "reboot": 142,
        "clone": 220,
        "clone3": 435,
        "unshare": 97,
        "keyctl": 219,
        "setns": 268,
        "ioprio_set": 30,
        "sched_setattr": 274,
    },
}
CALLS = _NUMBERS[platform.machine()]


@app.handler
def pry(asked):
    """Try a way; return "done", or the words for the error that came instead."""
    way, target = asked
    try:
        WAYS[way](target)
    except OSError as error:
        return errno_name(error)
    return "done"


def errno_name(error):
    return os.strerror(error.errno)


def called(answer):
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def system_call(name, *arguments):
    return called(
        _libc.syscall(ctypes.c_long(CALLS[name]), *map(ctypes.c_long, arguments))
    )


def signal_it(pid):
    os.kill(pid, 0)


def write_its_memory(pid):
    os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))


def signal_own_child(_):
    with subprocess.Popen(["sleep", "60"]) as child:
        child.send_signal(signal.SIGKILL)


def leave_the_tree(_):
    called(_libc.prctl(36, 0, 0, 0, 0))


def clone_a_sibling(_):
    clone_parent = 0x8000
    pid = system_call("clone", clone_parent | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)


def gain_rights(_):
    with open("/proc/self/status") as status:
        lines = dict(line.split(":\t", 1) for line in status)
    if lines["NoNewPrivs"].strip() == "1":
        raise PermissionError(1, os.strerror(1))


def write_there(path):
    Path(path).write_text("x")


def remove_there(path):
    os.unlink(path)


def truncate_there(path):
    os.truncate(path, 0)


def rename_there(path):
    os.rename(path, f"{path}.moved")


def link_out(path):
    with tempfile.NamedTemporaryFile() as file:
        os.link(file.name, path)


def write_temporary(_):
    with tempfile.TemporaryDirectory() as place:
        Path(place, "a").write_text("a")
        os.rename(f"{place}/a", f"{place}/b")
        os.mkdir(f"{place}/c")
        os.rename(f"{place}/b", f"{place}/c/b")


def write_nothing(_):
    Path("/dev/null").write_text("x")


def connect_tcp(port):
    socket.create_connection(("127.0.0.1", port), timeout=5).close()


def send_udp(port):
    with socket.socket(type=socket.SOCK_DGRAM) as plug:
        plug.sendto(b"x", ("127.0.0.1", port))


def connect_abstract(name):
    with socket.socket(socket.AF_UNIX) as plug:
        plug.connect(f"\0{name}")


def clone_a_namespace(_):
    new_user = 0x10000000
    pid = system_call("clone", new_user | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)


def mount_it(_):
    called(_libc.mount(b"tmpfs", b"/run/jobpool/own", b"tmpfs", 0, None))


def talk_locally(_):
    for plug in socket.socketpair():
        plug.close()


def look_up_interfaces(_):
    socket.if_nameindex()


def run_a_program(_):
    subprocess.run(["true"], check=True)


def use_multiprocessing(_):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]


def use_threads(_):
    thread = threading.Thread(target=len, args=("",))
    thread.start()
    thread.join()


def idle(pid):
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def set_attr(pid):
    attr = struct.pack("=IIQiIQQQ", 48, 0, 0, 0, 0, 0, 0, 0)
    called(_libc.syscall(ctypes.c_long(CALLS["sched_setattr"]), pid, attr, 0))


def own_scheduling(_):
    """Do to oneself what must not be done to others."""
    pid = os.getpid()
    for one in (0, pid):
        set_attr(one)
        os.sched_setparam(one, os.sched_param(0))
        os.sched_setscheduler(one, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, one, 0)
        os.setpriority(os.PRIO_PGRP, one, 0)
        system_call("ioprio_set", 1, one, 0)
        os.sched_setaffinity(one, os.sched_getaffinity(0))
    with ThreadPoolExecutor(1) as threads:  # as libraries do, by pthread_setaffinity_np
        number = threads.submit(threading.get_native_id).result()
        os.sched_setaffinity(number, os.sched_getaffinity(0))
    with subprocess.Popen(["sleep", "60"]) as program:
        os.sched_setaffinity(program.pid, os.sched_getaffinity(0))
        program.kill()


WAYS = {
    "idle": idle,
    "param": lambda pid: os.sched_setparam(pid, os.sched_param(0)),
    "attr": set_attr,
    "nice": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "nice group": lambda pid: os.setpriority(os.PRIO_PGRP, os.getpgid(pid), 19),
    "nice user": lambda _: os.setpriority(os.PRIO_USER, 0, 0),
    "disk": lambda pid: system_call("ioprio_set", 1, pid, 3 << 13),
    "disk user": lambda _: system_call("ioprio_set", 3, 0, 0),
    "high bits": lambda _: system_call("ioprio_set", 3 | 1 << 32, 0, 0),
    "cores": lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
    "own scheduling": own_scheduling,
    "signal": signal_it,
    "memory": write_its_memory,
    "own child": signal_own_child,
    "leave": leave_the_tree,
    "sibling": clone_a_sibling,
    "gain": gain_rights,
    "ptrace": lambda _: system_call("ptrace", 0, 0, 0, 0),
    "bpf": lambda _: system_call("bpf", 0, 0, 0),
    "reboot": lambda _: system_call("reboot", 0, 0, 0, 0),
    "clone3": lambda _: system_call("clone3", 0, 0),
    "unshare": lambda _: system_call("unshare", 0x10000000),
    "keyctl": lambda _: system_call("keyctl", 0, -3, 0),
    "setns": lambda _: system_call("setns", 0, 0),
    "new user": clone_a_namespace,
    "mount": mount_it,
    "abstract": connect_abstract,
    "write": write_there,
    "remove": remove_there,
    "truncate": truncate_there,
    "rename": rename_there,
    "link": link_out,
    "temporary": write_temporary,
    "null": write_nothing,
    "tcp": connect_tcp,
    "udp": send_udp,
    "local": talk_locally,
    "interfaces": look_up_interfaces,
    "program": run_a_program,
    "multiprocessing": use_multiprocessing,
    "threads": use_threads,
}


@app.handler
def surroundings(_):
    """Report what it runs on."""
    return {
        "nice": os.nice(0),
        "cpus": sorted(os.sched_getaffinity(0)),
    }
