"""``manage.py jobpool``: jobpool's command line, with the settings of this project.

``manage.py jobpool`` starts a supervisor, ``manage.py jobpool status`` is ``jobpool
status``, and so on: everything that is not an option of this command is passed on. It
becomes that program, which loads the project in its zygotes alone.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from argparse import BooleanOptionalAction
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import ENVIRONMENT_VARIABLE, settings
from django.core.management.base import (
    BaseCommand,
    CommandError,
    handle_default_options,
)
from django.utils import autoreload

from jobpool.client.gateway import find_settings
from jobpool.errors import ConfigError
from jobpool.integrations.django.backend import JobpoolBackend, the_backend
from jobpool.integrations.django.compat import DEFAULT_TASK_QUEUE_NAME
from jobpool.integrations.django.discovery import all_tasks
from jobpool.integrations.django.options import APPLICATION, BACKEND_VARIABLE

_DEFAULT_POOLS = {"cpu", "io"}
"""Those that run if nothing names any."""
_WITH_US = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes a command that drains when this process is gone: Django kills the one that
reloads when Ctrl-C or a signal ends the one above it."""
_STOP_S_MAX = 30.0
"""How long a supervisor may drain when the code has changed; then it is killed."""


class Command(BaseCommand):  # type: ignore[misc] # Django has no types
    """The command."""

    help = (
        "Start a supervisor for this project's tasks. All other words and options are "
        "those of the command `jobpool`: `manage.py jobpool --pools default=4`, "
        "`manage.py jobpool status`, `manage.py jobpool list --state dead`."
    )

    def add_arguments(self, parser: Any) -> None:
        """Declare the options that are not passed on."""
        parser.allow_abbrev = False
        parser.add_argument(
            "--backend",
            default="",
            help="The alias in TASKS, if several are jobpool's.",
        )
        parser.add_argument(
            "--reload",
            action=BooleanOptionalAction,
            default=settings.DEBUG,
            help="Start it anew when code has changed; default: DEBUG.",
        )

    def run_from_argv(self, argv: list[str]) -> None:
        """Run it with the words of a command line, of which most are passed on."""
        self._called_from_command_line = True
        parser = self.create_parser(argv[0], argv[1])
        own, words = parser.parse_known_args(argv[2:])
        handle_default_options(own)
        try:
            self.execute(**vars(own), words=words)
        except CommandError as exc:
            self.stderr.write(f"{type(exc).__name__}: {exc}")
            sys.exit(exc.returncode)

    def handle(
        self, *, backend: str, reload: bool, words: Sequence[str] = (), **_more: Any
    ) -> None:
        """Become the command `jobpool`, or start it again and again.

        Raises:
            CommandError: it is not clear what to run, or the store's URL is wrong.
        """
        try:
            chosen = the_backend(backend)
            if not words or words[0].startswith("-"):
                words = ["run", *words]
            starts = words[0] == "run"
            has_pools = starts or words[0] == "check"
            env = _environment(chosen, words if has_pools else None)
        except ConfigError as exc:
            raise CommandError(str(exc), returncode=2) from None
        command = [sys.executable, "-m", "jobpool", *words]
        self.stdout.flush()
        if not (starts and reload) or "--burst" in words:
            os.execve(command[0], command, env)
        autoreload.run_with_reloader(_supervise, command, env, chosen)


def _environment(
    backend: JobpoolBackend, words: Sequence[str] | None
) -> dict[str, str]:
    """Return the environment of the command.

    Args:
        backend: whose tasks are meant.
        words: of a start, or of a check of one; None: pools do not matter.

    Raises:
        ConfigError: the configuration or the store's URL is wrong.
    """
    url = backend.read.url
    env = {
        **os.environ,
        ENVIRONMENT_VARIABLE: os.environ[ENVIRONMENT_VARIABLE],
        "JOBPOOL_STORE": url,
        "JOBPOOL_APP": APPLICATION,
        BACKEND_VARIABLE: backend.alias,
        # Where manage.py found the project, from wherever it was called.
        "PYTHONPATH": os.pathsep.join(
            filter(None, (sys.path[0], os.environ.get("PYTHONPATH")))
        ),
    }
    if words is not None and not _names_pools(words, env):
        queues = backend.read.queues or (DEFAULT_TASK_QUEUE_NAME,)
        if set(find_settings(url).pool_names) == _DEFAULT_POOLS:
            size = os.cpu_count() or 1
            env["JOBPOOL_POOLS"] = ",".join(f"{queue}={size}" for queue in queues)
    return env


def _names_pools(words: Sequence[str], env: Mapping[str, str]) -> bool:
    return "JOBPOOL_POOLS" in env or any(
        word.partition("=")[0] == "--pools" for word in words
    )


def _supervise(
    command: Sequence[str], env: Mapping[str, str], backend: JobpoolBackend
) -> None:
    """Run a supervisor until it ends, or until the reloader ends this process."""
    autoreload.raise_last_exception()
    all_tasks(backend.read.modules)  # what is imported here is watched
    with_us = [sys.executable, "-c", _WITH_US, str(os.getpid())]
    process = subprocess.Popen([*with_us, *command], env=env)
    atexit.register(_stop, process)
    process.wait()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Let a supervisor end, and wait for that."""
    process.terminate()
    try:
        process.wait(_STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
