"""How an executor's processes start: side by side, with only what is needed."""

import os
import signal
import sys
from pathlib import Path

import jobpool
from support.machine.executing import PATIENCE_S, host_of, script
from support.site.supervising import children_of, is_alive
from support.waiting import wait_until


def command_of(pid):
    """Return the words of a process's command; none if it has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def zygote_of(executor):
    """Return the pid of the process that forks the children and never ran exec."""
    host = host_of(executor)
    leaders = [pid for pid in children_of(host) if os.getsid(pid) == pid]
    return host, leaders


def test_the_first_zygote_exists_before_the_supervisor():
    """It is forked while the host imports; the next one is started as always."""
    with jobpool.Executor(1) as executor:
        executor.submit(abs, -1).result(PATIENCE_S)
        host, leaders = zygote_of(executor)
        first = [pid for pid in leaders if command_of(pid) == command_of(host)]
        assert first
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        assert executor.submit(abs, -2).result(PATIENCE_S) == 2
        wait_until(
            lambda: set(children_of(host)).isdisjoint(first), PATIENCE_S, "its end"
        )
        assert executor.submit(os._exit, 1).exception(PATIENCE_S)
        assert executor.submit(abs, -3).result(PATIENCE_S) == 3
        assert any(
            b"fresh.begin" in b" ".join(command_of(p)) for p in children_of(host)
        )


def test_an_executor_needs_no_package_that_is_not_installed_with_it(monkeypatch):
    """One that is no dependency, multiprocess, is used where somebody has it."""
    monkeypatch.setitem(sys.modules, "multiprocess", None)
    with jobpool.Executor(1) as executor:
        assert executor.submit(abs, -1).result(PATIENCE_S) == 1


def test_a_dead_waiting_zygote_is_noticed_when_it_should_begin():
    """Its exit code is known, and begin() raises OSError."""
    done = script(
        "from jobpool.sandbox.zygote import prefork\n"
        "prefork.prefork(())\n"
        "gone = prefork.take()\n"
        "assert prefork.take() is None\n"
        "assert gone.exitcode is None\n"
        "os.kill(gone.pid, signal.SIGKILL)\n"
        "while gone.exitcode is None:\n"
        "    time.sleep(0.001)\n"
        "assert gone.exitcode == -signal.SIGKILL\n"
        "try:\n"
        "    gone.begin({b'A': b'b'})\n"
        "except OSError:\n"
        "    sys.stdout.write('gone')\n"
    )
    assert done.stdout == "gone"


def test_a_waiting_zygote_ends_with_the_process_that_forked_it():
    """Without its parent it has no use. Its new parent may not have reaped it yet."""
    done = script(
        "from jobpool.sandbox.zygote import prefork\n"
        "prefork.prefork(())\n"
        "waiting = prefork.take()\n"
        "sys.stdout.write(str(waiting.pid))\n"
    )
    wait_until(lambda: not is_alive(int(done.stdout)), PATIENCE_S, "its end")


def test_importing_jobpool_imports_only_what_is_used():
    """The package's names are imported on use; all promised ones exist."""
    done = script(
        "missing = [n for n in jobpool.__all__ if n not in dir(jobpool)]\n"
        "early = [m for m in sys.modules if m.startswith('jobpool.client')]\n"
        "found = [getattr(jobpool, name) for name in jobpool.__all__]\n"
        "print(missing, early, len(found) == len(jobpool.__all__))\n"
        "try:\n"
        "    jobpool.nothing\n"
        "except AttributeError as error:\n"
        "    print(error)\n"
    )
    said = "[] [] True\nmodule 'jobpool' has no attribute 'nothing'\n"
    assert done.stdout == said


def test_a_program_that_only_declares_handlers_imports_neither_store_nor_settings():
    """Both come with the first job: half of what a client imports."""
    done = script(
        "jobpool.JobPool().job('cpu', kind='it')(len)\n"
        "late = {'sqlite3', 'psycopg', 'tomllib', 'asyncio', 'rich', 'click', 'dill',\n"
        "        'multiprocess', 'jsonschema', 'pathlib', 'jobpool.store.opening',\n"
        "        'jobpool.store.protocol', 'jobpool.core.config.load',\n"
        "        'jobpool.executor'}\n"
        "print('jobpool.client.jobpool' in sys.modules, late & set(sys.modules))\n"
    )
    assert done.stdout == "True set()\n"


def test_a_host_imports_no_database():
    """Its store is in memory."""
    done = script(
        "import jobpool.executor.host.host\n"
        "sys.stdout.write(repr([m for m in sys.modules if 'sqlite' in m]))\n"
    )
    assert done.stdout == "[]"
