"""Beasts that end their own process, in every possible way."""

# Written as users write:
# ruff: noqa: T201

import atexit
import ctypes
import mmap
import os
import resource
import signal
import sys
import tempfile
import threading
import time

from beasts import (
    SUCCEEDED,
    beast,
    crashed,
    execute,
    exited,
    failed,
    libc,
    succeeds,
)

SEGV = crashed(signal.SIGSEGV, stack="Segmentation fault")


@beast(SEGV._replace(stack="in null_pointer"))
def null_pointer():
    ctypes.string_at(0)


@beast(SEGV)
def jump_to_nowhere():
    ctypes.CFUNCTYPE(None)(8)()


@beast(SEGV)
def segv_in_thread():
    threading.Thread(target=ctypes.string_at, args=(0,)).start()
    time.sleep(60)


@succeeds
def segv_in_a_copy():
    pid = os.fork()
    if pid == 0:
        ctypes.string_at(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV


@beast(SEGV)
def stack_overflow():
    execute({"x86_64": b"\x50\xeb\xfd", "aarch64": b"\xe0\x07\xbf\xa9\xff\xff\xff\x17"})


@beast(crashed(signal.SIGILL, stack="Illegal instruction"))
def illegal_instruction():
    execute({"x86_64": b"\x0f\x0b", "aarch64": bytes(4)})


@beast(crashed(signal.SIGTRAP))
def break_point():
    execute({"x86_64": b"\xcc", "aarch64": b"\x00\x00\x20\xd4"})


@beast(crashed(signal.SIGFPE, stack="Floating"))
def division_in_c():
    signal.raise_signal(signal.SIGFPE)


@beast(crashed(signal.SIGBUS, stack="Bus error"))
def bus_error():
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        area = mmap.mmap(file.fileno(), 4096)
        file.truncate(0)
        area[0] = 1


@beast(crashed(signal.SIGABRT, stack="Abort"))
def abort():
    os.abort()


@beast(SEGV._replace(stack=""))
def segv_without_fault_handler():
    import faulthandler

    faulthandler.disable()
    ctypes.string_at(0)


@beast(crashed(signal.SIGSEGV, output="last words"))
def last_words():
    print("last words")
    sys.stdout.write("without an end of line\n")
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)


@beast(exited(0))
def exit_0():
    os._exit(0)


@beast(exited(7))
def exit_7():
    os._exit(7)


@beast(exited(3))
def exit_in_c():
    libc.exit(3)


@beast(exited(4))
def exit_from_thread():
    threading.Thread(target=os._exit, args=(4,)).start()
    time.sleep(60)


@beast(exited(0))
def exec_true():
    os.execvp("true", ["true"])


@beast(failed("SystemExit: the handler called sys.exit(0)"))
def sys_exit_0():
    sys.exit(0)


@beast(failed("SystemExit: the handler called sys.exit('nonsense')"))
def sys_exit_text():
    sys.exit("nonsense")


@beast(failed("KeyboardInterrupt"))
def keyboard_interrupt():
    raise KeyboardInterrupt


class _Deepest(BaseException):
    pass


@beast(failed("dying._Deepest: no Exception"))
def base_exception():
    raise _Deepest("no Exception")


@beast(failed("GeneratorExit"))
def generator_exit():
    raise GeneratorExit


@beast(crashed(signal.SIGKILL, "jobpool did not send it"))
def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


@beast(crashed(signal.SIGKILL, "jobpool did not send it"))
def kill_its_group():
    os.killpg(0, signal.SIGKILL)
    time.sleep(60)


@beast(crashed(signal.SIGTERM, "jobpool did not send it"))
def end_itself():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


@beast(crashed(signal.SIGALRM, "jobpool did not send it"))
def alarm():
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    time.sleep(60)


@beast(crashed(signal.SIGKILL, "jobpool did not send it"))
def killed_by_its_copy():
    if os.fork() == 0:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    time.sleep(60)


@beast(crashed(signal.SIGXCPU, "jobpool did not send it"))
def cpu_limit_of_its_own():
    resource.setrlimit(resource.RLIMIT_CPU, (1, 60))
    while True:
        pass


@beast(SUCCEEDED)
def hang_at_exit():
    atexit.register(time.sleep, 1000)


@beast(crashed(signal.SIGSEGV))
def daemon_and_crash():
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(1000)
    ctypes.string_at(0)
