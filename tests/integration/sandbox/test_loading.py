"""Loading applications: what works, and what is refused with which message."""

import pytest

from jobpool.sandbox.protocol.messages import Loaded, LoadFailed, StartFailed
from support.machine.sandbox_rig import PATIENCE_S, Rig
from support.waiting import wait_until

GOOD = "from fake_application import FakeApplication\napp = FakeApplication()\n"
ECHO = "@app.handler\ndef echo(value):\n    return value\n"


@pytest.fixture
def load(tmp_path):
    """Write an application, start a zygote on it, and return both."""
    rigs = []

    def loader(source, app="shop", *, preload=True, name="shop.py"):
        from support.machine import sandbox_rig

        directory = tmp_path / "app"
        directory.mkdir(exist_ok=True)
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
        (directory / "fake_application.py").write_text(
            (sandbox_rig.Path(sandbox_rig.APPS) / "fake_application.py").read_text()
        )
        rig = Rig(tmp_path, app, where=str(directory), preload=preload)
        rigs.append(rig)
        return rig

    yield loader
    for rig in rigs:
        rig.close()


@pytest.mark.parametrize("preload", [True, False])
@pytest.mark.parametrize(
    ("app", "name"),
    [
        ("shop", "shop.py"),
        ("shop:app", "shop.py"),
        ("shop.py", "shop.py"),
        ("deep/er/shop.py", "deep/er/shop.py"),
        ("deep.er.shop", "deep/er/shop.py"),
        ("has-dash.py:app", "has-dash.py"),
    ],
)
def test_modules_and_files_load(load, app, name, preload):
    """An application is a module or a file, with or without its attribute."""
    rig = load(GOOD + ECHO, app, name=name, preload=preload)
    loaded = rig.loaded()
    assert isinstance(loaded, Loaded), loaded
    assert [spec.kind for spec in loaded.report.handlers] == ["echo"]
    assert loaded.report.base_rss_bytes > 2**20
    assert rig.result(rig.child(), "echo", 3) == 3


def test_a_files_module_has_its_importable_name(load):
    """A file is loaded under its import name: once, not twice."""
    source = GOOD + "@app.handler\ndef me(_):\n    import deep.shop\n"
    source += "    return [__name__, deep.shop.app is app]\n"
    rig = load(source, "deep/shop.py", name="deep/shop.py")
    rig.loaded()
    assert rig.result(rig.child(), "me") == ["deep.shop", True]


@pytest.mark.parametrize("preload", [True, False])
@pytest.mark.parametrize(
    ("source", "app", "words"),
    [
        ("", "missing", ["no module 'missing'", "--app"]),
        ("", "missing.py", ["no file", "missing.py"]),
        ("import nothing_here", "shop", ["nothing_here"]),
        ("raise ValueError('boom')", "shop", ["ValueError: boom"]),
        ("def f(:", "shop", ["SyntaxError"]),
        ("import sys; sys.exit(4)", "shop", ["sys.exit(4)", "__main__"]),
        ("", "shop", ["no JobPool"]),
        (GOOD, "shop:other", ["no attribute 'other'", "app"]),
        ("app = 3", "shop:app", ["of type int"]),
        (GOOD + "second = FakeApplication()", "shop", ["2 JobPools", "shop:app"]),
    ],
)
def test_an_application_that_fails_to_load_is_refused_clearly(
    load, source, app, words, preload
):
    """An application that fails to load is refused, by name and with the remedy."""
    rig = load(source, app, preload=preload)
    failed = rig.loaded()
    assert isinstance(failed, LoadFailed)
    assert all(word in failed.message for word in words), failed.message
    assert "sandbox" not in failed.traceback
    wait_until(
        lambda: rig.zygote.exit_status() is not None, PATIENCE_S, "the zygote ends"
    )


def test_a_failed_import_includes_its_traceback(load):
    """The application's own traceback is included, from its own first line."""
    failed = load("def f():\n    1 / 0\nf()").loaded()
    assert "ZeroDivisionError" in failed.message
    assert 'shop.py", line 2, in f' in failed.traceback


def test_an_app_that_exits_on_import_is_reported(load):
    """os._exit on import ends the zygote (preloaded), or is reported as a status."""
    rig = load("import os; os._exit(5)")
    assert rig.from_zygote() == [None]
    wait_until(lambda: rig.zygote.exit_status() == 5, PATIENCE_S, "its status")
    failed = load("import os; os._exit(5)", preload=False).loaded()
    assert "exit status 5" in failed.message


def test_an_app_that_hangs_can_be_killed(load):
    """Loading that never ends is ended by killing the zygote."""
    rig = load("import time; time.sleep(1000)")
    assert rig.zygote.rss_bytes() > 0
    assert rig.zygote.exit_status() is None
    rig.zygote.kill()
    assert rig.from_zygote() == [None]


THREADS = "import threading, time, _thread\n{start}\n" + GOOD + ECHO
NAMED = "threading.Thread(target=time.sleep, args=(99,), name='ticker', daemon=True)"


def test_threads_at_import_are_refused_by_name(load):
    """Threads do not survive a fork: the app is refused, and they are named."""
    failed = load(THREADS.format(start=NAMED + ".start()")).loaded()
    assert isinstance(failed, LoadFailed)
    assert "ticker" in failed.message
    assert "preload = false" in failed.message
    unnamed = "_thread.start_new_thread(time.sleep, (99,))"
    failed = load(THREADS.format(start=unnamed)).loaded()
    assert "1 without a name" in failed.message


def test_threads_are_fine_without_preloading(load):
    """With preload = false each child imports the app itself, threads and all."""
    rig = load(THREADS.format(start=NAMED + ".start()"), preload=False)
    assert isinstance(rig.loaded(), Loaded)
    child = rig.child()
    done = rig.run(child, "echo", 1)
    assert (done.ok, done.surprise) == (True, "")


def test_sockets_opened_at_import_are_dead_in_children(load):
    """A connection that the app opens on import is named, and closed in children."""
    source = GOOD + (
        "import socket, tempfile\n"
        "a, b = socket.socketpair()\n"
        "file = tempfile.TemporaryFile('w+')\n"
        "file.write('kept'); file.flush()\n"
        "@app.handler\n"
        "def use(_):\n"
        "    file.seek(0)\n"
        "    try:\n"
        "        a.sendall(b'x')\n"
        "    except OSError as exc:\n"
        "        return [file.read(), type(exc).__name__]\n"
    )
    rig = load(source)
    loaded = rig.loaded()
    assert "2 sockets" in " ".join(loaded.report.warnings)
    assert rig.result(rig.child(), "use") == ["kept", "BrokenPipeError"]


def test_a_hook_that_raises_stops_the_child(load):
    """on_child_start runs in each child; its error is reported, and the child ends."""
    source = GOOD + "def hook():\n    raise RuntimeError('no tracker')\n"
    rig = load(source + "app.hooks.append(hook)\n")
    rig.loaded()
    child = rig.child(ready=False)
    failed = rig.message(child)
    assert isinstance(failed, StartFailed)
    assert "RuntimeError: no tracker" in failed.message
    assert "in hook" in failed.traceback
    assert rig.exit(child).exit_code == 1


def test_processes_started_by_hooks_are_not_leftovers(load):
    """A thread or helper that a hook starts belongs to the child, not to a job."""
    hook = (
        "import subprocess, threading, time\n"
        "def hook():\n"
        "    threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n"
        "    subprocess.Popen(['sleep', '99'])\n"
        "app.hooks.append(hook)\n"
    )
    rig = load(GOOD + ECHO + hook)
    rig.loaded()
    child = rig.child()
    assert rig.run(child, "echo", 1).surprise == ""
    child.kill_tree()


def test_enqueue_while_importing_is_refused(load):
    """A call at module level would enqueue itself forever: it is refused."""
    call = "from jobpool.core.application import current\ncurrent.channel().enqueue([])"
    source = GOOD + call
    failed = load(source).loaded()
    assert "is being imported" in failed.message


@pytest.mark.parametrize("preload", [True, False])
@pytest.mark.parametrize("then", [GOOD + ECHO, "import sys; sys.exit(4)"])
def test_output_of_an_import_goes_to_stderr(load, capfd, monkeypatch, preload, then):
    """What an import prints goes to stderr: stdout may be JSON for another program.

    It is there as soon as anybody knows how the import went, also if that failed.
    """
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    load("print('loading')\n" + then, preload=preload).loaded()
    out, err = capfd.readouterr()
    assert out == ""
    assert "loading" in err
